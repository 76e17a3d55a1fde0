"""A server of a single command, in processes of its own behind a Unix socket; it ends with the
command.

The socket listens before the server can answer, so the first requests of the command wait there
meanwhile.
"""

import json
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from app.connections.listening import BACKLOG
from app.system.own_folder import own_folder
from models.settings import Settings
from workers.supervision.gpu_discovery import wanted_gpus
from workers.supervision.startup import cores
from workers.supervision.supervisor import command

MANY = 2000
"""Images from which front ends of their own are worth their start, on GPUs."""

CONNECTIONS, PER_GPU = 4, 64
"""Requests at a time that keep two cores of a CPU busy, and a GPU."""

WITHOUT_LIMIT = 1 << 40
"""More bytes, images or pixels than the command has under way."""

LONG = 3600.0
"""Seconds that a request may take: the command alone waits for it."""

END = 10.0
"""Seconds in which the server ends after SIGTERM."""

ONE_CLIENT: dict[str, Any] = {
    **dict.fromkeys(("max_image_bytes", "max_body_bytes", "max_bytes_in_flight"), WITHOUT_LIMIT),
    **dict.fromkeys(
        ("default_deadline", "max_deadline", "body_timeout", "header_timeout", "idle_timeout"), LONG
    ),
    **dict.fromkeys(
        ("settings_file", "tls_certificate", "tls_key", "api_keys_file", "rate_limit"), None
    ),
    **dict.fromkeys(("metrics_port", "grpc_port", "max_images_per_client", "result_cache"), 0),
    "host": "127.0.0.1",  # its socket is in a private folder
    "grace": 0.0,
    "log_level": "warning",
    "max_images_per_request": 64,
    "max_images_in_flight": 1 << 16,
    "data_folder": None,
    "tracing": False,
}
"""The settings of a server with a single client, which is trusted."""


class PrivateServer:
    """A started server with the settings of a command that has `total` images.

    Without `weights` it only filters. With `full_batches` the scores of an image do not depend on
    the batch that it is part of. `path` is its Unix socket, `gpus` is the number of its GPUs, and
    `connections` is the number of requests that keep it busy.
    """

    def __init__(
        self, settings: Settings, total: int, *, weights: bool, full_batches: bool
    ) -> None:
        self.gpus = gpus = wanted_gpus(settings.gpus)
        self.connections = PER_GPU * gpus or max(CONNECTIONS, cores(settings) + 2)
        self._folder = own_folder("darkroom-command")
        self.path = f"{self._folder.name}/socket"
        changed = dict(ONE_CLIENT)
        if settings.front_ends == "auto" and not (gpus and total >= MANY):
            changed["front_ends"] = "0"
        with socket.socket(socket.AF_UNIX) as listening:
            try:
                listening.bind(self.path)
            except OSError as error:
                self._folder.cleanup()
                raise ValueError(
                    f"TMPDIR: no socket can be made at {self.path}: {error}; name a shorter folder"
                ) from None
            listening.listen(BACKLOG)
            orders = {
                "role": "private",
                "settings": settings.model_copy(update=changed).model_dump(mode="json"),
                "socket": listening.fileno(),
                "weights": weights,
                "full_batches": full_batches,
            }
            self._process = subprocess.Popen(
                command("app.processes.member", "server of a command"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(listening.fileno(),),
                start_new_session=True,  # a terminal's Ctrl-C reaches the command alone
            )
        self._problem = ""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(orders).encode() + b"\n")
        self._process.stdin.flush()

    def end(self, patience: float) -> tuple[int, str] | None:
        """Return the exit code and the problem of a server that ends within `patience` seconds."""
        try:
            code = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return None
        assert self._process.stdout
        self._problem += self._process.stdout.read().decode()  # the pipe tells once
        return code, self._problem

    def kill(self) -> None:
        """End the server at once and remove its socket; its processes notice that and end too."""
        self._process.kill()
        with self._process:  # waits for its end
            self._folder.cleanup()

    def close(self) -> None:
        """End the server, and wait for its end."""
        self._process.terminate()
        self.end(END)
        self.kill()


def start_sender(pipes: Sequence[int]) -> "subprocess.Popen[bytes]":
    """Start a process that sends the images which come through pipes, and ends with this process.

    `pipes` are descriptors, which may be closed afterwards.
    """
    return subprocess.Popen(
        [*command("app.bulk.sender", "sender of a command"), *map(str, pipes)],
        stdin=subprocess.PIPE,
        pass_fds=pipes,
        start_new_session=True,
    )
