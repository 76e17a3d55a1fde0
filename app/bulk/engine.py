"""Answer the images of a command by servers: forms of several images, several at a time, in order.

The servers are given by `--server`, or the command starts its own. Images go through senders: in
threads of the command, or in processes of their own where an interpreter is slower than the server.
"""

import os
import subprocess
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any

from app.bulk import contents
from app.bulk.errors import EngineLost, WrongUsage
from app.bulk.sender import BYTES, RETRIES, Chunk, Sender, Wire
from app.bulk.walk import Source, Task
from app.bulk.work import Finished, Identity, Work, identity
from app.processes.private_server import MANY, PrivateServer, start_sender
from darkroom_client import ConnectionFailed, DarkroomError, Network, Retries
from darkroom_client.answers import decoded
from darkroom_client.conversation import Attempts, body_of
from darkroom_client.records import Networks
from darkroom_client.requests import Call
from darkroom_client.sync_side import run
from models.exit_codes import ExitCode
from models.settings import Settings
from models.settings_loading import API_KEY
from models.usable_cpus import usable_cores

IMAGES = 16
"""Most images of a request."""

CONNECTIONS = 8
"""Requests at a time to each server of `--server`."""

AHEAD = 4
"""Chunks for each connection that are under way or wait for the records before them: these leave in
order, and a slow chunk must not leave the connections without work."""

BYTES_AHEAD = 256 << 20
"""Bytes of members of archives from which no further ones are read ahead."""

CORES, MOST_PROCESSES = 4, 4
"""Cores for each sending process, and most of these processes: a server on two cores needs both."""

TURN = 0.5
"""Seconds after which a wait for records ends and begins again."""


def start(settings: Settings, work: Work, servers: Sequence[str], total: int) -> "Engine":
    """Return the engine for `total` images; WrongUsage says why it cannot do the work."""
    for each in servers:
        if not contents.is_url(each):
            raise WrongUsage(f"--server: {each!r} is no URL, as http://localhost:8000")
    key = os.environ.get(API_KEY, "")
    if servers and not (key.isascii() and key.isprintable()):
        text = "a key has printable ASCII characters only, and no line feed"
        raise WrongUsage(f"{API_KEY}: {text}; give the key of the server")
    own = None
    if not servers:
        weights, full = work.needs_weights, not work.timing  # others are never continued
        try:
            own = PrivateServer(settings, total, weights=weights, full_batches=full)
        except ValueError as error:  # of a GPU that does not exist, or of a folder for the socket
            raise WrongUsage(str(error)) from None
    few = total < MANY or (own is not None and not own.gpus)
    processes = 0 if few else min(MOST_PROCESSES, usable_cores() // CORES)
    return Engine(work, servers, own, settings.max_image_bytes, processes)


class Engine:
    """Sender of images to `servers`, which share the requests, or to the command's `own` server.

    `limit` bounds the bytes of a member of an archive. The images go through `processes`, or none.
    `identity` has the properties of the network that records depend on, None without a network.
    """

    def __init__(
        self,
        work: Work,
        servers: Sequence[str],
        own: PrivateServer | None,
        limit: int,
        processes: int = 0,
    ) -> None:
        self._work, self._own, self._limit = work, own, limit
        urls = ["http://localhost"] if own is not None else [each.rstrip("/") for each in servers]
        self._connections = own.connections if own else CONNECTIONS * len(urls)
        self._processes: list[subprocess.Popen[bytes]] = []  # they start while the server does
        pipes: list[tuple[subprocess.Popen[bytes], Connection[Any, Any]]] = []
        for number in range(processes):
            ends = [Pipe() for _ in range(number, self._connections, processes)]
            self._processes.append(start_sender([theirs.fileno() for _, theirs in ends]))
            for ours, theirs in ends:
                theirs.close()
                pipes.append((self._processes[-1], ours))
        self.identity: Identity | None = None
        try:
            if own is None or work.needs_weights:
                self.identity = self._common_network(urls)
        except BaseException:  # re-raised
            self.kill()
            raise
        path = None if own is None else own.path
        warning = str((self.identity or {}).get("warning", ""))
        self._senders = list[Sender | SenderProcess]()
        for number in range(self._connections):
            first = number % len(urls)
            given = (work, urls[first:] + urls[:first], path, warning)
            if processes:
                self._senders.append(SenderProcess(*pipes[number], given))
            else:
                self._senders.append(Sender(*given))

    def answers(self, tasks: Iterator[Task]) -> Generator[list[Finished]]:
        """Yield the answers of all tasks, in their order, a chunk at a time."""
        under_way, chunks = deque[_Chunk](), SimpleQueue[_Chunk | None]()
        for sender in self._senders:  # daemons: nothing waits for them
            Thread(target=_answer, args=(sender, chunks), daemon=True).start()
        most, held = AHEAD * self._connections, 0
        try:
            for chunk in _chunks(tasks, self._limit):
                chunks.put(chunk)
                under_way.append(chunk)
                held += chunk.size
                while under_way and (
                    under_way[0].records.done() or len(under_way) >= most or held > BYTES_AHEAD
                ):
                    yield result_of(under_way[0].records, self._check_own)
                    held -= under_way.popleft().size
            while under_way:
                yield result_of(under_way.popleft().records, self._check_own)
        finally:
            for _ in self._senders:
                chunks.put(None)

    def kill(self) -> None:
        """End the processes at once."""
        for each in self._processes:
            each.kill()
        if self._own is not None:
            self._own.kill()

    def close(self) -> None:
        """End the processes; wait for the end of the own server."""
        for each in self._processes:
            each.kill()
            each.communicate()
        if self._own is not None:
            self._own.close()

    def _common_network(self, servers: Sequence[str]) -> Identity | None:
        """Return the identity of the network of all servers, if the work needs a network."""
        found = [self._network(each) for each in servers]
        if any(each != found[0] for each in found):
            raise WrongUsage("--server: the servers have different networks, weights or labels")
        return found[0]

    def _network(self, server: str) -> Identity | None:
        """Return the identity of a server's first network."""
        flag = "" if self._own else "--server: "
        weights: dict[str, Any] = {}
        try:
            wire = Wire([server], self._own.path if self._own else None, self._check_own)
            # The own server is asked until it has ended, because its end says why.
            tries = Attempts(RETRIES if self._own else Retries(tries=1))
            body = run(body_of(wire, Call("GET", "/models"), tries, (200,)))
            networks: list[Network] = decoded(body, Networks).models
            if self._work.needs_weights and not networks:
                call = Call("GET", "/readyz", params={"verbose": ""})
                body = run(body_of(wire, call, tries, (200, 503)))
                weights = decoded(body, dict[str, Any]).get("weights", {})
            wire.close()
        except ValueError as error:  # also UnicodeError, of a host
            raise WrongUsage(
                f"{flag}{server!r} is no URL, as http://localhost:8000: {error}"
            ) from None
        except ConnectionFailed as error:
            raise WrongUsage(
                f"{flag}{server} cannot be reached: {error}; `darkroom health {server}` tells more"
            ) from None
        except DarkroomError as error:
            raise WrongUsage(f"{flag}{server} does not tell its networks: {error}") from None
        if not self._work.needs_weights:
            return None
        if not networks:
            problem = weights.get("problem", "see its log")
            raise WrongUsage(f"{flag}{server} has no network with weights: {problem}")
        return identity(networks[0])

    def _check_own(self) -> None:
        """Raise why the command's own server has ended, if it has."""
        ended = self._own.end(0) if self._own is not None else None
        if ended is None:
            return
        code, problem = ended
        if code == ExitCode.WRONG_USAGE:
            raise WrongUsage(problem or "the workers cannot work with these settings; see above")
        raise EngineLost(
            f"the server that the command started has ended with exit code {code}; the same "
            "command goes on, and --exclude leaves out an image that is the cause"
        )


class SenderProcess:
    """The `Sender` with the arguments `given` in another process, at the end of a pipe."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", pipe: "Connection[Any, Any]", given: object
    ) -> None:
        self._process, self._pipe = process, pipe
        with suppress(ConnectionError):  # it has ended, as the first chunk will tell
            pipe.send(given)

    def answered(self, chunk: Chunk) -> list[Finished]:
        """Return the records of a chunk; EngineLost if the process has ended."""
        try:
            self._pipe.send(chunk)
            answer: list[Finished] | Exception = self._pipe.recv()
        except (EOFError, ConnectionError):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(TURN)
            raise EngineLost(
                "a process of the command that sends images has ended with exit code "
                f"{self._process.poll()}; the same command goes on"
            ) from None
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass(slots=True)
class _Chunk:
    """Tasks of a request, with the contents that were read for it, of `size` bytes."""

    tasks: list[tuple[Task, contents.Content | None]] = field(default_factory=list)
    size: int = 0
    records: Future[list[Finished]] = field(default_factory=Future)


def _answer(sender: Sender | SenderProcess, chunks: "SimpleQueue[_Chunk | None]") -> None:
    """Answer chunks by a sender, on a thread of its own."""
    while (chunk := chunks.get()) is not None:
        try:
            chunk.records.set_result(sender.answered(chunk.tasks))
        except BaseException as error:  # `result_of` raises it again
            chunk.records.set_exception(error)


def _chunks(tasks: Iterator[Task], limit: int) -> Iterator[_Chunk]:
    """Yield tasks in chunks, in their order.

    Members of an archive are read here, because the archive is open as long as its members are
    iterated, and so are the inputs of this process.
    """
    chunk = _Chunk()
    for task in tasks:
        number, source, target = task
        loaded: contents.Content | None = None
        if source.load is not None or contents.is_own(source.name):
            load = partial(source.load, limit) if source.load is not None else None
            loaded = contents.content(source.name, load)
            chunk.size += len(loaded) if isinstance(loaded, bytes) else 0
            task = Task(number, Source(source.name, source.place), target)
        chunk.tasks.append((task, loaded))
        if len(chunk.tasks) == IMAGES or chunk.size >= BYTES:
            yield chunk
            chunk = _Chunk()
    if chunk.tasks:
        yield chunk


def result_of(records: Future[list[Finished]], check: Callable[[], None]) -> list[Finished]:
    """Wait for records; `check` raises if there is no use in another turn.

    A signal that comes just before a turn begins is handled at its end.
    """
    while not wait([records], TURN).done:
        check()
    return records.result()
