"""Answer the images of a command by servers: forms of several images, several at a time, in order.

The servers are those of `--server`, or one that the command starts for itself. A server that is
saturated says when to ask again (429 and 503 with `Retry-After`); then only the images that it did
not answer are sent again.
"""

import http.client
import itertools
import os
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, local
from typing import Any

import msgspec

from app.bulk.connection import UNIX, connection, path_of
from app.bulk.errors import EngineLost, WrongUsage
from app.bulk.sources import contents
from app.bulk.work import Finished, Record, Task, Work, failure
from app.intake.item import Url
from app.intake.spool import Blob
from app.processes.private_server import LONG, PrivateServer
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

PATIENCE = 600.0
"""Seconds for which the same images are asked for again before the command ends."""

FIRST_WAIT, MOST_WAIT, MOST_TOLD = 0.5, 30.0, 300.0
"""Seconds of the first wait before the same images are asked for again, of the longest one, and of
the longest one that a server may ask for."""

TEMPORARY = (429, 502, 503, 504)
"""Statuses of answers after which the same request may succeed."""

DYING = 1.0
"""Seconds in which a process ends whose connections are lost."""

TURN = 0.5
"""Seconds after which a wait for records ends and begins again."""

LINES = ("application/x-ndjson", "application/jsonl")
"""Media types of answers with a record for each image."""

Content = Blob | Url | ServiceError


def start(settings: Settings, work: Work, servers: Sequence[str], total: int) -> "Engine":
    """Return the engine for `total` images; WrongUsage says why it cannot do the work."""
    for each in servers:
        if not contents.is_url(each):
            raise WrongUsage(f"--server: {each!r} is no URL, as http://localhost:8000")
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
    """Client of `servers`, which share the requests, or of the command's `own` server.

    `limit` bounds the bytes of a member of an archive. `identity` has the properties of the network
    that records depend on, None without one.
    """

    def __init__(
        self, work: Work, servers: Sequence[str], own: PrivateServer | None, limit: int
    ) -> None:
        self._work, self._own, self._limit = work, own, limit
        urls = [f"{UNIX}{own.path}"] if own is not None else [each.rstrip("/") for each in servers]
        self._servers = itertools.cycle(urls)
        self._connections = own.connections if own else CONNECTIONS * len(urls)
        self._patience = LONG if own else DEADLINE + 10
        self._boundary = secrets.token_hex(16)
        self._thread = local()
        self._opened: list[http.client.HTTPConnection] = []
        self._ended = Event()
        self._headers = {
            "Accept": LINES[0],
            "Content-Type": f"multipart/form-data; boundary={self._boundary}",
        }
        self._secret: dict[str, str] = {}
        if own is None:
            self._headers["X-Deadline-Ms"] = str(int(DEADLINE * 1000))
            if key := os.environ.get(API_KEY):
                self._secret = {"Authorization": f"Bearer {key}"}
        self.identity = self._asked_identity(urls)

    def answers(self, tasks: Iterator[Task]) -> Generator[list[Finished]]:
        """Yield the answers of all tasks, in their order, a chunk at a time."""
        under_way: deque[tuple[Future[list[Finished]], int]] = deque()
        pool = ThreadPoolExecutor(self._connections)
        most, held = AHEAD * self._connections, 0
        try:
            for chunk in _chunks(tasks, self._limit):
                under_way.append((pool.submit(self._answered, chunk), chunk.size))
                held += chunk.size
                while under_way and (
                    under_way[0][0].done() or len(under_way) >= most or held > BYTES_AHEAD
                ):
                    yield _result(under_way[0][0])
                    held -= under_way.popleft()[1]
            while under_way:
                yield _result(under_way[0][0])
                under_way.popleft()
        finally:
            self._ended.set()
            for each in self._opened:
                if each.sock is not None:  # a thread may wait for an answer there
                    with suppress(OSError):
                        each.sock.shutdown(socket.SHUT_RDWR)
            pool.shutdown(wait=False, cancel_futures=True)

    def kill(self) -> None:
        """End the own server at once."""
        if self._own is not None:
            self._own.kill()

    def close(self) -> None:
        """Close the connections and end the own server; wait for its end."""
        for each in self._opened:
            each.close()
        if self._own is not None:
            self._own.close()

    def _asked_identity(self, urls: Sequence[str]) -> Mapping[str, object] | None:
        if self._own is not None and not self._work.needs_weights:
            return None
        found = [self._identity(each) for each in urls]
        if any(each != found[0] for each in found):
            raise WrongUsage("--server: the servers have different networks, weights or labels")
        return found[0]

    def _identity(self, server: str) -> Mapping[str, object] | None:
        flag = "" if self._own else "--server: "
        try:
            status, _, body = self._request(server, "GET", "/models")
        except (OSError, http.client.HTTPException) as error:
            self._check_own()
            reason = str(error) or type(error).__name__
            raise WrongUsage(
                f"{flag}{server} cannot be reached: {reason}; `darkroom health {server}` tells more"
            ) from None
        if status != http.client.OK:
            raise WrongUsage(f"{flag}{server} answers GET /models with {status}")
        try:
            return self._work.identity(msgspec.json.decode(body))
        except WrongUsage as error:
            raise WrongUsage(f"{flag}{error}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise WrongUsage(
                f"{flag}{server} answers GET /models otherwise than Darkroom does"
            ) from None

    def _answered(self, chunk: "_Chunk") -> list[Finished]:
        """Read the files of a chunk, send requests, and return the records. Call it on a thread."""
        found: dict[int, Finished] = {}
        left: list[tuple[Task, Content]] = []
        size = 0
        for task, loaded in chunk.tasks:
            content = loaded or contents.content(task.source, self._limit)
            if isinstance(content, ServiceError):
                found[task.index] = self._work.finished(task, failure(content))
                continue
            own = content.size if isinstance(content, Blob) else 0
            if left and size + own > BYTES:
                self._ask_all(left, found)
                left, size = [], 0
            left.append((task, content))
            size += own
        self._ask_all(left, found)
        return [found[task.index] for task, _ in chunk.tasks]

    def _ask_all(self, left: list[tuple[Task, Content]], found: dict[int, Finished]) -> None:
        """Ask for images until each has its record."""
        backoff = _Backoff(self._ended)
        while left := [each for each in left if each[0].index not in found]:
            told = self._ask(left, found, backoff)
            if told is not None and not backoff.wait(told):
                raise EngineLost(
                    f"no server has answered image {left[0][0].index} within {PATIENCE:.0f} s: "
                    f"{backoff.reason}; the same command goes on there"
                )

    def _ask(
        self, left: list[tuple[Task, Content]], found: dict[int, Finished], backoff: "_Backoff"
    ) -> float | None:
        """Send one request; add its final records. Return the seconds to wait if some are left."""
        server = next(self._servers)
        try:
            status, headers, body = self._request(server, "POST", self._work.path, self._form(left))
        except (OSError, http.client.HTTPException) as error:
            self._check_own()
            backoff.reason = f"{server}: {error!r}"
            return 0.0
        if not headers.get("Content-Type", "").startswith(LINES):
            code, detail = _problem(status, body)
            if status in TEMPORARY:
                backoff.reason = f"{server} answers {status}: {detail}"
                return _told_seconds(headers.get("Retry-After"))
            if status in (401, 403, 404, 405) or code == "invalid_parameter":
                raise WrongUsage(f"--server: it answers {status}: {detail}")
            if len(left) > 1:  # each image gets its own error
                for each in left:
                    self._ask_all([each], found)
                return None
            task = left[0][0]
            record: Record = {"status": "error", "error": {"code": code, "detail": detail}}
            found[task.index] = self._work.finished(task, record)
            return None
        for line in body.splitlines():
            try:
                record = msgspec.json.decode(line)
                task, problem = left[record["index"]][0], record.get("error") or {}
                again = problem.get("status") in (429, 503)
                again = again or problem.get("code") == "deadline_exceeded"
            except (ValueError, LookupError, TypeError, AttributeError):  # a proxy lost the server
                backoff.reason = f"{server}: its answer broke off, or is none of Darkroom"
                continue
            if again:
                backoff.reason = f"{server}: {problem.get('detail')}"
            else:
                found[task.index] = self._work.finished(task, record)
        return None if all(task.index in found for task, _ in left) else 0.0

    def _form(self, images: Sequence[tuple[Task, Content]]) -> bytes:
        """Return the body of a form: the options, then the images in their order.

        File names are numbers: a name such as `a.zip` has a meaning for a server.
        """
        begin = f'--{self._boundary}\r\nContent-Disposition: form-data; name="'.encode()
        pieces: list[bytes] = []
        for name, value in self._work.options.items():
            pieces += (begin, f'{name}"\r\n\r\n{value}\r\n'.encode())
        for number, (_, content) in enumerate(images):
            if isinstance(content, Url):
                url = content.url.encode("utf-8", "surrogateescape")
                pieces += (begin, b'urls"\r\n\r\n', url, b"\r\n")
            elif isinstance(content, Blob):
                head = b'files"; filename="%d"\r\n\r\n' % number
                pieces += (begin, head, content.read(), b"\r\n")
        pieces.append(f"--{self._boundary}--\r\n".encode())
        return b"".join(pieces)

    def _request(
        self, server: str, method: str, path: str, body: bytes | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Return the status, the headers and the body of an answer, on this thread's connection."""
        kept = vars(self._thread)
        if (opened := kept.get(server)) is None:
            opened = kept[server] = connection(server, self._patience)
            self._opened.append(opened)
        headers = self._secret if body is None else {**self._secret, **self._headers}
        try:
            opened.request(method, path_of(server) + path, body, headers)
            answer = opened.getresponse()
            return answer.status, answer.headers, answer.read()
        except BaseException:  # re-raised; the next request opens the connection again
            opened.close()
            raise

    def _check_own(self) -> None:
        """Raise why the command's own server has ended, if it has."""
        ended = self._own.end(DYING) if self._own is not None else None
        if ended is None:
            return
        code, problem = ended
        if code == ExitCode.WRONG_USAGE:
            raise WrongUsage(problem or "the workers cannot work with these settings; see above")
        raise EngineLost(
            f"the server that the command started has ended with exit code {code}; the same "
            "command goes on, and --exclude leaves out an image that is the cause"
        )


@dataclass(slots=True)
class _Chunk:
    """Tasks that one thread answers, with the contents that were read for it, of `size` bytes."""

    tasks: list[tuple[Task, Content | None]]
    size: int = 0


def _chunks(tasks: Iterator[Task], limit: int) -> Iterator[_Chunk]:
    """Yield tasks in chunks, in their order.

    Members of an archive are read here, because the archive is open as long as its members are
    iterated. A pipe is alone in its chunk, because another program decides when its bytes come, and
    images before it must not wait for them.
    """
    chunk = _Chunk([])
    for task in tasks:
        loaded: Content | None = None
        if task.source.load is not None:
            loaded = contents.content(task.source, limit)
            chunk.size += loaded.size if isinstance(loaded, Blob) else 0
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


def _result(answering: "Future[list[Finished]]") -> list[Finished]:
    """Wait for a result. A signal that comes just before a wait begins is handled at its end."""
    while not answering.done():
        wait([answering], TURN)
    return answering.result()


class _Backoff:
    """The waits of one request; they end after `PATIENCE`, and when `ended` is set. `reason` is the
    last failure.

    Waits are spread at random, so that requests that failed together do not return together.
    """

    def __init__(self, ended: Event) -> None:
        self._ended = ended
        self._end, self._next, self.reason = time.monotonic() + PATIENCE, FIRST_WAIT, ""

    def wait(self, told: float) -> bool:
        """Wait as long as the server has `told`, else twice as long each time.

        Return False instead if the patience would end meanwhile, or if all has ended.
        """
        seconds = max(told, self._next * random.uniform(0.5, 1.0))  # noqa: S311 (no secret)
        self._next = min(MOST_WAIT, 2 * self._next)
        if time.monotonic() + seconds > self._end:
            return False
        return not self._ended.wait(seconds)


def _told_seconds(header: str | None) -> float:
    """Return the seconds of `Retry-After`, 0 without them; a date is not read."""
    try:
        return min(MOST_TOLD, max(0.0, float(header or 0)))
    except ValueError:
        return 0.0


def _problem(status: int, body: bytes) -> tuple[str, str]:
    """Return the code and the text of a problem; proxies answer with other bodies."""
    try:
        found: dict[str, Any] = msgspec.json.decode(body)
        return str(found["code"]), str(found["detail"])
    except (ValueError, KeyError, TypeError):
        return "http_error", f"the server answered with {status}"
