"""Send the images of a command to servers and make records of the answers.

The conversation is that of the Python client, over a connection of the standard library: httpx
costs more CPU time for an image than all else. As a program this module is a process beside the
command: its threads answer chunks that come through pipes, whose descriptors are its arguments.
"""

import base64
import functools
import itertools
import os
import random
import socket
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http.client import (
    HTTP_PORT,
    HTTPS_PORT,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    IncompleteRead,
)
from multiprocessing.connection import Connection
from typing import Any, TypeVar, cast
from urllib.parse import SplitResult, unquote, urlencode, urlsplit
from uuid import uuid4

from app.bulk import contents
from app.bulk.errors import EngineLost, WrongUsage
from app.bulk.walk import Task
from app.bulk.work import Finished, Work, failure
from app.processes.private_server import LONG
from darkroom_client import (
    ConnectionFailed,
    ImageResult,
    InvalidAnswer,
    Problem,
    RequestError,
    Retries,
)
from darkroom_client.image_results import results_of
from darkroom_client.images import Groups, Item
from darkroom_client.requests import Call
from darkroom_client.retries import again_for_image
from darkroom_client.settings import CONNECT, STEP
from darkroom_client.sync_side import iterate
from models.domain.errors import ServiceError
from models.malloc import keep_freed_memory
from models.settings_loading import API_KEY
from models.version import VERSION

T = TypeVar("T")

BYTES = 8 << 20
"""Bytes after which a request ends: a large file goes alone."""

DEADLINE = 120.0
"""Seconds in which a server of `--server` has to answer a request; `X-Deadline-Ms` tells it."""

RETRIES = Retries(tries=25, longest_pause=30.0)
"""Tries of the same images; their pauses take ten minutes."""

TEMPORARY = (408, 429, 502, 503, 504)
"""Statuses of refused requests that the same command may ask again later."""

REFUSED = (401, 403, 404, 405)
"""Statuses of requests that the server refuses whatever the images are."""

PIECE = 1 << 20
"""Most bytes of an answer that are read at a time."""

BOUNDARY = uuid4().hex.encode()
"""The boundary of the forms of this process."""

Chunk = Sequence[tuple[Task, contents.Content | None]]
"""Tasks of a request, with the contents that were read already."""


class Sender:
    """Sender of a request at a time to one of `servers`, or to the Unix socket `path`.

    `warning` is that of the network.
    """

    def __init__(self, work: Work, servers: Sequence[str], path: str | None, warning: str) -> None:
        self._work, self._warning = work, warning
        self._wire = Wire(servers, path)
        self._call = work.call()

    def answered(self, chunk: Chunk) -> list[Finished]:
        """Read the files of a chunk, send them, and return the records.

        Raises WrongUsage, CannotWrite, and EngineLost if no server has answered.
        """
        read = [
            (task, contents.content(task.source.name) if loaded is None else loaded)
            for task, loaded in chunk
        ]
        sent = [(task, each) for task, each in read if not isinstance(each, ServiceError)]
        try:
            groups = Groups(max(1, len(sent)), BYTES)
            items = [_item(number, each) for number, (_, each) in enumerate(sent)]
            every = itertools.chain(*map(groups.add, items), groups.rest())
            found = [result for group in every for result in self._asked(group)]
        except (RequestError, ConnectionFailed) as error:
            raise _unanswered(chunk[0][0], str(error)) from None
        for (task, _), result in zip(sent, found, strict=True):
            problem = result.error
            if problem and again_for_image(problem.status, problem.code, own_deadline=False):
                raise _unanswered(task, problem.detail)
        results = iter(found)
        return [
            self._work.finished(
                task,
                failure(each) if isinstance(each, ServiceError) else next(results),
                self._warning,
            )
            for task, each in read
        ]

    def _asked(self, items: list[Item]) -> list[ImageResult]:
        """Return the answers of a server; WrongUsage if no image can have an answer.

        An image for which the server refuses a whole request is asked for alone, and then has the
        error of the request. An answer that is none of Darkroom's is asked for again, as after a
        broken connection, and at last is the error of its images. Raises DarkroomError if another
        try may help.
        """
        try:
            for tried in itertools.count(1):
                try:
                    found = iterate(results_of(self._wire, self._call, items, RETRIES))
                    return sorted(found, key=lambda each: each.index)
                except InvalidAnswer as error:
                    pause = RETRIES.pause(tried, None, None, random.random())  # noqa: S311 (jitter)
                    if pause is None:
                        problem = Problem("invalid_answer", str(error))
                        return [each.failed(problem) for each in items]
                    time.sleep(pause)
        except RequestError as error:
            problem = error.problem
            if problem.status in REFUSED or problem.code == "invalid_parameter":
                raise WrongUsage(f"a server refuses the images: {error}") from None
            if problem.status in TEMPORARY:
                raise
            if len(items) == 1:
                return [items[0].failed(problem)]
        return [result for each in items for result in self._asked([each])]


class ServerAnswer:
    """The answer to a request whose headers have come."""

    def __init__(self, response: HTTPResponse) -> None:
        self._response, self.status = response, response.status
        self.headers = cast(Mapping[str, str], response.headers)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body in pieces; raises ConnectionFailed after those of a broken body."""
        try:
            while piece := self._response.read(PIECE):
                yield piece
        except (OSError, HTTPException) as error:
            if isinstance(error, IncompleteRead):
                yield error.partial
            raise _failed(error) from error


class Wire:
    """The wire of the Python client over a connection to the first of `servers`.

    After a try that failed the next server is asked. A proxy of the environment is never used.
    `check` is called when a connection is lost, and raises if there is no use in another try.
    """

    def __init__(
        self, servers: Sequence[str], path: str | None, check: Callable[[], None] = lambda: None
    ) -> None:
        self._servers, self._path, self._check = deque(map(urlsplit, servers)), path, check
        self._headers = {"User-Agent": f"darkroom/{VERSION}"}
        if path is None:
            self._headers["X-Deadline-Ms"] = str(int(DEADLINE * 1000))
            if key := os.environ.get(API_KEY):
                self._headers["Authorization"] = f"Bearer {key}"
        self._connection: HTTPConnection | None = None

    @asynccontextmanager
    async def send(self, call: Call, _seconds: float | None) -> AsyncIterator[ServerAnswer]:
        """Send a request and wait for the headers of its answer; raises ConnectionFailed."""
        good = False
        try:
            response = self._response(call)
            yield ServerAnswer(response)
            good = response.status == 200 and response.isclosed()
        except (OSError, HTTPException) as error:
            self._check()
            raise _failed(error) from error
        finally:
            if not good:
                self.close()
                self._servers.rotate(-1)

    async def pause(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)  # noqa: ASYNC251 (no event loop runs this)

    async def call(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """Return the result of a function."""
        return function(*arguments)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _response(self, call: Call) -> HTTPResponse:
        server = self._servers[0]
        body, headers = None, {**self._headers, **call.headers}
        if server.username is not None:
            given = f"{unquote(server.username)}:{unquote(server.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(given.encode()).decode()}"
        if call.fields or call.files:
            body = form_of(call)
            headers["Content-Type"] = f"multipart/form-data; boundary={BOUNDARY.decode()}"
        query = f"?{urlencode(call.params)}" if call.params else ""
        target = f"{server.path.rstrip('/')}{call.path}{query}"
        # The connection has no socket any more if the server has said that it closes it.
        if self._connection is None or self._connection.sock is None:
            self._connection = connected(server, self._path)
        # A server that refuses a body before its end has answered although the rest is not sent.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.request(call.method, target, body, headers)
        return self._connection.getresponse()


def connected(server: SplitResult, path: str | None) -> HTTPConnection:
    """Return an open connection; raises OSError, and ValueError for a URL that is none."""
    if path is not None:
        made = HTTPConnection("localhost")
        made.sock = socket.socket(socket.AF_UNIX)
        made.sock.settimeout(LONG)  # the command alone waits for its server
        made.sock.connect(path)
        return made
    if not server.hostname:
        raise ValueError("it has no host")
    # Without a port, http.client takes the end of an IPv6 address for it.
    if server.scheme == "https":
        port = server.port or HTTPS_PORT
        made = HTTPSConnection(server.hostname, port, timeout=CONNECT, context=_trust())
    else:
        made = HTTPConnection(server.hostname, server.port or HTTP_PORT, timeout=CONNECT)
    made.connect()
    made.sock.settimeout(STEP)
    return made


@functools.cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def form_of(call: Call) -> bytes:
    """Return the form of a request; its files come after its fields."""
    head, parts = b'--%s\r\nContent-Disposition: form-data; name="%s"', list[bytes]()
    for name, given in call.fields.items():
        for value in [given] if isinstance(given, str) else given:
            parts += (head % (BOUNDARY, name.encode()), b"\r\n\r\n", value.encode(), b"\r\n")
    of_files = head % (BOUNDARY, b"files")
    for name, content in call.files:
        kind = b'; filename="%s"\r\nContent-Type: application/octet-stream\r\n\r\n' % name.encode()
        parts += (of_files, kind, content, b"\r\n")
    return b"".join([*parts, b"--%s--\r\n" % BOUNDARY])


def _item(number: int, content: bytes | str) -> Item:
    if isinstance(content, str):
        return Item(number, None, None, url=content)
    return Item(number, None, None, content=content, size=len(content))


def _failed(error: Exception) -> ConnectionFailed:
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    return ConnectionFailed(text, permanent=isinstance(error, ssl.SSLCertVerificationError))


def _unanswered(task: Task, reason: str) -> EngineLost:
    return EngineLost(
        f"no server has answered image {task.number}: {reason}; the same command goes on there"
    )


def serve(pipe: Connection) -> None:
    """Answer the chunks that come through a pipe, after the arguments of a sender, to its end."""
    with pipe, suppress(EOFError, ConnectionError):
        sender = Sender(*pipe.recv())
        while True:
            chunk: Chunk = pipe.recv()
            answer: list[Finished] | Exception
            try:
                answer = sender.answered(chunk)
            except Exception as error:  # the command raises it again
                answer = error
            pipe.send(answer)


def main() -> None:
    """Answer until the command has ended: standard input ends with it."""
    keep_freed_memory()  # the next form needs as much
    for each in sys.argv[2:]:
        threading.Thread(target=serve, args=(Connection(int(each)),), daemon=True).start()
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
