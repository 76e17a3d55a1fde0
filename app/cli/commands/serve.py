"""`darkroom serve`: serve HTTP until stopped, in a process or in several."""

import argparse
import errno
import os
import socket
import sys
from importlib.util import find_spec

from app.bulk.errors import WrongUsage
from app.cli.flags import add_settings
from models.exit_codes import ExitCode
from models.settings import Settings

NO_ADDRESS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES, errno.EAFNOSUPPORT)
"""Error numbers of binding a socket, which happens before the model is loaded."""

EXAMPLES = (
    "darkroom serve",
    "darkroom serve --port 9000 --networks resnet18,resnet50",
    "darkroom serve --env-file darkroom.env --front-ends 4",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: every setting has an argument."""
    add_settings(parser, list(Settings.model_fields))


def run(settings: Settings) -> int:
    """Serve; an address that cannot be listened on is reported before the model is loaded.

    The server is imported here: `serve --help` takes 0.2 s of CPU time without it, 0.9 s with it.
    """
    from app.connections.listening import bind, bind_metrics, check_tls
    from app.processes import plan as tree
    from app.telemetry import logs, tracing

    logs.configure(settings.log_level, settings.log_format)
    try:
        check_tls(settings)
        tracing.check(settings.tracing)
        if settings.grpc_port:
            _check_grpc()
        plan = tree.Plan.of(settings)
        _check_files(settings)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    if plan.front_ends and not hasattr(os, "memfd_create"):
        raise WrongUsage(
            "--front-ends: several processes need memory files, which only Linux has; leave it out"
        )
    try:
        _check_grpc_port(settings)
        if plan.front_ends:
            return tree.run(settings, plan)
        from app import main
        from app.processes import uvicorn_server

        sockets = [bind(settings.host, settings.port)]
        server = uvicorn_server.Server(main.create_app(settings), settings, bind_metrics(settings))
        return uvicorn_server.run(server, sockets)
    except OSError as error:
        if error.errno not in NO_ADDRESS and not isinstance(error, socket.gaierror):
            raise
        print(_cannot_listen(error), file=sys.stderr)
        return ExitCode.CANNOT_LISTEN


def _check_files(settings: Settings) -> None:
    """Raise ValueError if the API keys, the presets or the data folder cannot be used.

    Every front end would find that too, but only after the model is loaded.
    """
    from app.admission.clients import read_keys
    from app.intake.presets import read_presets

    if settings.api_keys_file is not None:
        read_keys(settings.api_keys_file)
    read_presets(settings.presets)
    if settings.data_folder is not None:
        from app.jobs.files import DataFolder

        DataFolder(settings.data_folder).make()


def _check_grpc() -> None:
    """Raise ValueError where the extra is missing."""
    if find_spec("grpc") is None:
        raise ValueError(
            'DARKROOM_GRPC_PORT needs the extra `grpc`: in a checkout run `pip install ".[grpc]"`, '
            "or install requirements-extras.lock"
        )


def _check_grpc_port(settings: Settings) -> None:
    """Raise OSError if the port is in use: grpcio says so only after the networks were loaded."""
    from app.connections.listening import bind

    if settings.grpc_port:
        bind(settings.host, settings.grpc_port, " (--grpc-port)").close()


def _cannot_listen(error: OSError) -> str:
    reason = str(error.strerror or error)
    return (
        f"darkroom: cannot listen on {error.filename}: {reason[:1].lower()}{reason[1:]}; "
        "choose another address or port, or stop what listens there"
    )
