"""Answer the images of a command by servers: forms of several images, several at a time, in order.

The servers are given by `--server`, or the command starts its own. The Python client
sends the forms, and sends images again that a saturated server had no room for.
"""

import itertools
import os
import random
import ssl
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.pool import ApplyResult, ThreadPool
from typing import Any

import httpx

from app.bulk import contents
from app.bulk.errors import EngineLost, WrongUsage
from app.bulk.walk import Task
from app.bulk.work import Finished, Identity, Work, failure, identity
from app.processes.private_server import LONG, PrivateServer
from darkroom_client import (
    Client,
    ConnectionFailed,
    DarkroomError,
    Image,
    ImageResult,
    InvalidAnswer,
    Network,
    Problem,
    RequestError,
    Retries,
)
from darkroom_client.retries import again_for_image
from models.domain.errors import ServiceError
from models.exit_codes import ExitCode
from models.settings import Settings
from models.settings_loading import API_KEY

IMAGES, BYTES = 16, 8 << 20
"""Most images of a request, and bytes after which a request ends: a large file goes alone."""

CONNECTIONS = 8
"""Requests at a time to each server of `--server`."""

AHEAD = 4
"""Chunks for each connection that are under way or wait for the records before them: these leave in
order, and a slow chunk must not leave the connections without work."""

BYTES_AHEAD = 256 << 20
"""Bytes of members of archives from which no further ones are read ahead."""

DEADLINE = 120.0
"""Seconds in which a server of `--server` has to answer a request; `X-Deadline-Ms` tells it."""

RETRIES = Retries(tries=25, longest_pause=30.0)
"""Tries of the same images; their pauses take ten minutes."""

TEMPORARY = (408, 429, 502, 503, 504)
"""Statuses of refused requests that the same command may ask again later."""

REFUSED = (401, 403, 404, 405)
"""Statuses of requests that the server refuses whatever the images are."""

TURN = 0.5
"""Seconds after which a wait for records ends and begins again."""


def start(settings: Settings, work: Work, servers: Sequence[str], total: int) -> "Engine":
    """Return the engine for `total` images; WrongUsage says why it cannot do the work."""
    for each in servers:
        if not contents.is_url(each):
            raise WrongUsage(f"--server: {each!r} is no URL, as http://localhost:8000")
    if servers and not os.environ.get(API_KEY, "").isascii():
        raise WrongUsage(f"{API_KEY}: a key has ASCII characters only; give the key of the server")
    own = None
    if not servers:
        weights, full = work.needs_weights, not work.timing  # others are never continued
        try:
            own = PrivateServer(settings, total, weights=weights, full_batches=full)
        except ValueError as error:  # of a GPU that does not exist
            raise WrongUsage(str(error)) from None
    try:
        return Engine(work, servers, own, settings.max_image_bytes)
    except BaseException:  # re-raised
        if own is not None:
            own.kill()
        raise


class Engine:
    """Sender of images to `servers`, which share the requests, or to the command's `own` server.

    `limit` bounds the bytes of a member of an archive. `identity` has the properties of the network
    that records depend on, None without a network.
    """

    def __init__(
        self, work: Work, servers: Sequence[str], own: PrivateServer | None, limit: int
    ) -> None:
        self._work, self._own, self._limit = work, own, limit
        urls = ["http://localhost"] if own is not None else [each.rstrip("/") for each in servers]
        self._connections = own.connections if own else CONNECTIONS * len(urls)
        self.identity: Identity | None = None
        if own is None or work.needs_weights:
            found = [self._network(each) for each in urls]
            if any(each != found[0] for each in found):
                raise WrongUsage("--server: the servers have different networks, weights or labels")
            self.identity = found[0] if work.needs_weights else None
        self._warning = str((self.identity or {}).get("warning", ""))
        self._client = self._opened(urls, RETRIES)

    def answers(self, tasks: Iterator[Task]) -> Generator[list[Finished]]:
        """Yield the answers of all tasks, in their order, a chunk at a time."""
        under_way: deque[tuple[ApplyResult[list[Finished]], int]] = deque()
        pool = ThreadPool(self._connections)  # its threads are daemons: nothing waits for them
        most, held = AHEAD * self._connections, 0
        try:
            for chunk in _chunks(tasks, self._limit):
                under_way.append((pool.apply_async(self._answered, (chunk,)), chunk.size))
                held += chunk.size
                while under_way and (
                    under_way[0][0].ready() or len(under_way) >= most or held > BYTES_AHEAD
                ):
                    yield result_of(under_way[0][0])
                    held -= under_way.popleft()[1]
            while under_way:
                yield result_of(under_way.popleft()[0])
        finally:
            pool.terminate()

    def kill(self) -> None:
        """End the own server at once."""
        if self._own is not None:
            self._own.kill()

    def close(self) -> None:
        """Close the connections and end the own server; wait for its end."""
        self._client.close()
        if self._own is not None:
            self._own.close()

    def _opened(self, urls: Sequence[str], retries: Retries) -> Client:
        transport = _Transport(urls, self._own, self._connections, self._check_own)
        headers = {} if self._own else {"X-Deadline-Ms": str(int(DEADLINE * 1000))}
        return Client(
            urls[0],
            api_key=None if self._own else os.environ.get(API_KEY) or None,
            connections=1,
            images_per_request=IMAGES,
            bytes_per_request=BYTES,
            retries=retries,
            transport=transport,
            headers=headers,
        )

    def _network(self, server: str) -> Identity | None:
        """Return the identity of a server's first network."""
        flag = "" if self._own else "--server: "
        weights: dict[str, Any] = {}
        try:
            # The own server is asked until it has ended, because its end says why.
            retries = RETRIES if self._own else Retries(tries=1)
            with closing(self._opened([server], retries)) as client:
                networks: list[Network] = client.models()
                if self._work.needs_weights and not networks:
                    weights = client.health().details.get("weights", {})
        except (ValueError, httpx.InvalidURL) as error:  # also UnicodeError, of a host
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

    def _answered(self, chunk: "_Chunk") -> list[Finished]:
        """Read the files of a chunk, send them, and return the records. Call it on a thread."""
        read = [
            (task, contents.content(task.source, self._limit) if loaded is None else loaded)
            for task, loaded in chunk.tasks
        ]
        images = [Image(each) for _, each in read if not isinstance(each, ServiceError)]
        try:
            found = self._asked(images)
        except (RequestError, ConnectionFailed) as error:
            raise _unanswered(chunk.tasks[0][0], str(error)) from None
        sent = (task for task, each in read if not isinstance(each, ServiceError))
        for task, result in zip(sent, found, strict=True):
            if result.error is not None and _is_temporary(result.error):
                raise _unanswered(task, result.error.detail)
        results = iter(found)
        return [
            self._work.finished(
                task,
                failure(each) if isinstance(each, ServiceError) else next(results),
                self._warning,
            )
            for task, each in read
        ]

    def _asked(self, images: list[Image]) -> list[ImageResult]:
        """Return the answers of a server; WrongUsage if no image can have an answer.

        An image for which the server refuses a whole request is asked for alone, and then has the
        error of the request. An answer that is none of Darkroom's is asked for again, as after a
        broken connection, and at last is the error of its images. Raises DarkroomError if another
        try may help.
        """
        try:
            for tried in itertools.count(1):
                try:
                    return self._work.ask(self._client, images)
                except InvalidAnswer as error:
                    pause = RETRIES.pause(tried, None, None, random.random())  # noqa: S311 (jitter)
                    if pause is None:
                        problem = Problem("invalid_answer", str(error))
                        return [
                            ImageResult(index=n, status="error", error=problem)
                            for n in range(len(images))
                        ]
                    time.sleep(pause)
        except RequestError as error:
            problem = error.problem
            if problem.status in REFUSED or problem.code == "invalid_parameter":
                raise WrongUsage(f"a server refuses the images: {error}") from None
            if problem.status in TEMPORARY:
                raise
            if len(images) == 1:
                return [ImageResult(index=0, status="error", error=problem)]
        return [result for each in images for result in self._asked([each])]

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


class _Transport(httpx.BaseTransport):
    """Transport that sends each request to the next of several servers, never through a proxy.

    `check` is called when a connection is lost, and raises if there is no use in another try.
    """

    def __init__(
        self,
        servers: Sequence[str],
        own: PrivateServer | None,
        connections: int,
        check: Callable[[], None],
    ) -> None:
        self._servers, self._check = itertools.cycle(map(httpx.URL, servers)), check
        self._base = len(httpx.URL(servers[0]).path.rstrip("/"))
        self._inner = httpx.HTTPTransport(
            verify=False if own else ssl.create_default_context(),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=connections),
            uds=own.path if own else None,
        )
        self._own = own

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its answer; httpx calls this."""
        server, path = next(self._servers), request.url.path[self._base :]
        request.url = server.copy_with(path=server.path.rstrip("/") + path)
        request.headers["Host"] = server.netloc.decode()
        if self._own is not None:  # the command alone waits for its server
            request.extensions["timeout"] = httpx.Timeout(LONG).as_dict()
        try:
            return self._inner.handle_request(request)
        except httpx.TransportError:
            self._check()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._inner.close()


@dataclass(slots=True)
class _Chunk:
    """Tasks that a thread answers, with the contents that were read for it, of `size` bytes."""

    tasks: list[tuple[Task, contents.Content | None]]
    size: int = 0


def _chunks(tasks: Iterator[Task], limit: int) -> Iterator[_Chunk]:
    """Yield tasks in chunks, in their order.

    Members of an archive are read here, because the archive is open as long as its members are
    iterated. A pipe is alone in its chunk, because another program decides when its bytes come, and
    images before it must not wait for them.
    """
    chunk = _Chunk([])
    for task in tasks:
        loaded: contents.Content | None = None
        if task.source.load is not None:
            loaded = contents.content(task.source, limit)
            chunk.size += len(loaded) if isinstance(loaded, bytes) else 0
        waits = loaded is None and contents.may_wait(task.source)
        if waits and chunk.tasks:
            yield chunk
            chunk = _Chunk([])
        chunk.tasks.append((task, loaded))
        if waits or len(chunk.tasks) == IMAGES or chunk.size >= BYTES:
            yield chunk
            chunk = _Chunk([])
    if chunk.tasks:
        yield chunk


def _is_temporary(problem: Problem) -> bool:
    return again_for_image(problem.status, problem.code, own_deadline=False)


def _unanswered(task: Task, reason: str) -> EngineLost:
    return EngineLost(
        f"no server has answered image {task.index}: {reason}; the same command goes on there"
    )


def result_of(answering: "ApplyResult[list[Finished]]") -> list[Finished]:
    """Wait for a result. A signal that comes just before a wait begins is handled at its end."""
    while not answering.ready():
        answering.wait(TURN)
    return answering.get()
