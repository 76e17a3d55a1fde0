"""A server on 127.0.0.1 whose answers are scripted, and both clients behind one function."""

import asyncio
import inspect
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import attrgetter
from typing import Any

from darkroom_client import AsyncClient, Client, ImageResult, Retries

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # httpx would load authorities for each client
QUICK = Retries(tries=4, first_pause=0.001, longest_pause=0.002)
"""Retries whose pauses take no time worth mentioning."""

LINES = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Received:
    """A request: its path, its headers and the names of its files; URLs come before files."""

    path: str
    headers: dict[str, str]
    names: list[str]
    fields: dict[str, str]
    body: bytes


Answer = Callable[["Exchange"], None]


@dataclass(slots=True)
class Exchange:
    """A request and the means to answer it."""

    request: Received
    handler: BaseHTTPRequestHandler

    def head(self, status: int, kind: str, **headers: str) -> None:
        """Send the head of an answer that ends with its connection."""
        self.handler.send_response(status)
        self.handler.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()
        self.handler.close_connection = True


@dataclass(slots=True)
class Scripted:
    """The requests of a server, and its answers in order; all others are `answered_well`."""

    answers: list[Answer] = field(default_factory=list)
    requests: list[Received] = field(default_factory=list)
    url: str = ""


def answered_well(exchange: Exchange) -> None:
    """Answer every image well."""
    sends(records(*range(len(exchange.request.names))))(exchange)


def sends(body: bytes, kind: str = LINES, status: int = 200, **headers: str) -> Answer:
    """Answer with this body."""

    def answer(exchange: Exchange) -> None:
        exchange.head(status, kind, **headers)
        exchange.handler.wfile.write(body)

    return answer


def document(body: object, status: int = 200) -> Answer:
    """Answer with a JSON document."""
    return sends(json.dumps(body).encode(), "application/json", status)


def records(*indices: int, **members: object) -> bytes:
    """Return the records of images, whose status is "ok" unless `members` has another one."""
    found = ({"index": index, "status": "ok"} | members for index in indices)
    return b"".join(json.dumps(each).encode() + b"\n" for each in found)


def problem(status: int, code: str, **headers: str) -> Answer:
    """Answer with a problem document."""
    body = {"code": code, "detail": f"it is {code}", "status": status, "title": code}
    return sends(json.dumps(body).encode(), "application/problem+json", status, **headers)


def page(status: int, **headers: str) -> Answer:
    """Answer as a proxy does, with a page in HTML."""
    return sends(b"<h1>proxy</h1>\n", "text/html", status, **headers)


def broken_after(count: int) -> Answer:
    """Answer the first images, then break the connection in the middle of a record."""
    return sends(records(*range(count)) + b'{"index": ', Content_Length="100000")


def fails(index: int, status: int, code: str) -> Answer:
    """Answer all images well but one."""

    def answer(exchange: Exchange) -> None:
        exchange.head(200, LINES)
        error = {"code": code, "detail": "it failed", "status": status}
        for each in range(len(exchange.request.names)):
            failed = {"status": "error", "error": error} if each == index else {}
            exchange.handler.wfile.write(records(each, **failed))

    return answer


@contextmanager
def scripted(*answers: Answer) -> Iterator[Scripted]:
    """Run a server with these answers on a free port."""
    script = Scripted([*answers])
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            names, fields = parts(body)
            headers = {name.lower(): value for name, value in self.headers.items()}
            received = Received(self.path, headers, names, fields, body)
            with lock:
                script.requests.append(received)
                answer = script.answers.pop(0) if script.answers else answered_well
            answer(Exchange(received, self))

        do_GET = do_POST
        do_DELETE = do_POST

        def log_message(self, *_: object) -> None:
            """Write nothing to standard error."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Ignore clients that leave."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        script.url = f"http://127.0.0.1:{server.server_port}"
        yield script
        server.shutdown()
        thread.join()


def parts(body: bytes) -> tuple[list[str], dict[str, str]]:
    """Return the images (URLs and names of files) and the other fields of a form."""
    text = body.decode("latin-1")
    urls = re.findall(r'name="urls"\r\n\r\n(.*?)\r\n--', text, re.DOTALL)
    files = re.findall(r'name="files"; filename="([^"]*)"', text)
    others = dict(re.findall(r'name="(?!urls)(\w+)"\r\n\r\n(.*?)\r\n--', text, re.DOTALL))
    return [*urls, *files], others


OF_CLIENTS = ("api_key", "headers", "connections", "images_per_request", "bytes_per_request")


def call(kind: str, url: str, method: str, *arguments: Any, **given: Any) -> Any:
    """Return what a method of one of the clients returns, as a list if the method yields.

    The options of OF_CLIENTS are settings of the client.
    """
    chosen = {name: given.pop(name) for name in OF_CLIENTS if name in given}
    settings: dict[str, Any] = {"retries": QUICK, "connections": 1, "verify": NO_TLS} | chosen

    async def asked() -> Any:
        async with AsyncClient(url, **settings) as client:
            found = attrgetter(method)(client)(*arguments, **given)
            return [each async for each in found] if inspect.isasyncgen(found) else await found

    if kind == "async":
        return asyncio.run(asked())
    with Client(url, **settings) as client:
        found = attrgetter(method)(client)(*arguments, **given)
        return [*found] if inspect.isgenerator(found) else found


def stream(kind: str, url: str, images: Any, **given: Any) -> list[ImageResult]:
    """Return what `classify_stream` of one of the clients yields, in its order."""
    found: list[ImageResult] = call(kind, url, "classify_stream", images, **given)
    return found
