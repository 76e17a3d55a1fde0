"""Reach a Ray cluster: its address, its nodes, and actors on them. Only this file uses Ray."""

import asyncio
import os
import re
import socket
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from app.bulk.engines.cluster.actor import actor_class
from app.bulk.engines.cluster.layout import Place
from app.bulk.errors import WrongUsage

MISSING = (
    "--ray needs the package Ray: install Darkroom with its extra `ray` "
    "(pip install '.[ray]' in its checkout)"
)

ADDRESSES = (
    "auto for the cluster that this machine is a node of, HOST:PORT of its head node, "
    "ray://HOST:PORT from a machine outside of it, or local for this machine alone"
)

REACHED = 10.0
"""Seconds within which a connection to the address must be accepted. Ray itself would try for
minutes, without saying so."""

AT_ONCE = 64
"""Most calls of an actor at a time; the command sends fewer."""

_HOST = re.compile(r"(ray://)?(\[[0-9a-fA-F:.]+\]|[^\s/:]+):([0-9]{1,5})")


class ActorLost(Exception):
    """An actor ended, cannot be reached or started, or failed as it would with its next chunks; or
    the cluster does not answer.
    """


def check_address(address: str) -> None:
    """Raise WrongUsage unless `address` has one of the forms of ADDRESSES and Ray is installed."""
    if address not in ("auto", "local") and _HOST.fullmatch(address) is None:
        raise WrongUsage(f"--ray: {address!r} is no address; give {ADDRESSES}")
    if find_spec("ray") is None:
        raise WrongUsage(MISSING)


def connect(address: str) -> "Cluster":
    """Join a cluster, or start one of this machine for `local`. WrongUsage if that fails.

    It blocks, so call it on a thread: there Ray leaves the handlers of signals alone, too.
    """
    check_address(address)
    if match := _HOST.fullmatch(address):
        _probe(address, match[2].strip("[]"), int(match[3]))
    ray = _imported()
    own: dict[str, Any] = {}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        own = {"include_dashboard": False}
    if not address.startswith("ray://"):
        own |= {"log_to_driver": False}
    try:
        ray.init(address=address, logging_level="ERROR", **own)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = " ".join(str(error).split())
        raise WrongUsage(
            f"--ray: {address} cannot be joined: {reason}; HOST:PORT and auto need a node of the "
            "cluster on this machine, ray://HOST:10001 does not, and a cluster with tokens needs "
            "RAY_AUTH_MODE=token"
        ) from None
    # Ray prints what happens to nodes and actors to standard output, where our records may go.
    vars(import_module("ray._private.worker"))["print_to_stdstream"] = _print_nothing
    return Cluster(ray)


def _print_nothing(*_data: object, **_options: object) -> None:
    """Take the place of a function of Ray that prints."""


class Cluster:
    """The cluster that this process has joined. Its methods block, those of actors do not."""

    def __init__(self, ray: Any) -> None:
        self._ray, self._class = ray, ray.remote(actor_class())
        strategies: Any = import_module("ray.util.scheduling_strategies")
        self._affinity = strategies.NodeAffinitySchedulingStrategy

    def nodes(self) -> Sequence[Mapping[str, Any]]:
        """Return the nodes as Ray describes them, those that were lost too; or raise ActorLost."""
        try:
            found: list[Mapping[str, Any]] = self._ray.nodes()
        except _ray_error() as error:
            raise _lost(error) from None
        return found

    def actor(self, place: Place) -> "Actor":
        """Begin to start an actor; it waits until its node has room for it. May raise ActorLost."""
        options = self._class.options(
            num_cpus=place.cpus,
            num_gpus=place.gpus,
            max_restarts=0,
            max_concurrency=AT_ONCE,
            scheduling_strategy=self._affinity(place.node, soft=False),
        )
        try:
            return Actor(self._ray, options.remote())
        except _ray_error() as error:
            raise _lost(error) from None

    def close(self) -> None:
        """Leave the cluster, which ends the actors of this process."""
        self._ray.shutdown()


class Actor:
    """One actor. Its methods raise ActorLost if it has ended, and when it ends meanwhile."""

    def __init__(self, ray: Any, handle: Any) -> None:
        self._ray, self._handle = ray, handle
        self._error = _ray_error()

    async def begin(self, version: str, orders: bytes) -> tuple[str | None, bytes]:
        """Start the engine; return a problem, or the encoded `Started`."""
        answer: tuple[str | None, bytes] = await self._asked(self._handle.begin, version, orders)
        return answer

    async def answer(self, message: bytes) -> tuple[str | None, bytes]:
        """Return a problem that ends the command, or the encoded answers of an encoded `Asked`."""
        answer: tuple[str | None, bytes] = await self._asked(self._handle.answer, message)
        return answer

    def kill(self) -> None:
        """End the actor at once."""
        self._ray.kill(self._handle)

    async def _asked(self, method: Any, *arguments: Any) -> Any:
        """Call a method; large arguments are copied to Ray's store, which takes milliseconds."""
        call: Callable[..., Any] = method.remote
        try:
            reference = await asyncio.to_thread(call, *arguments)
            return await asyncio.wrap_future(reference.future())
        except self._error as error:
            raise _lost(error) from None


def _ray_error() -> type[Exception]:
    found: type[Exception] = import_module("ray.exceptions").RayError
    return found


def _lost(error: Exception) -> ActorLost:
    return ActorLost(" ".join(str(error).split())[:1000])


def _probe(address: str, host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), REACHED).close()
    except OSError as error:
        reason = error.strerror or error
        raise WrongUsage(f"--ray: nothing answers at {address}: {reason}") from None


def _imported() -> Any:
    """Import Ray, some of whose modules use what Python or its own dependencies will remove."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"ray\.")
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"ray\.")
        try:
            return import_module("ray")
        except ImportError as error:
            text = f"--ray: Ray cannot be imported by {sys.executable}: {error}"
            raise WrongUsage(text) from None
