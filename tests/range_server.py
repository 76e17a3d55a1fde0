"""A small file server on 127.0.0.1 that supports Range and misbehaves as a test sets it."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class RangeServer:
    """A server of `body` at any path, on its own thread, while the context is open.

    `asked` is the Range header of every request so far, None if it had none. The next requests use
    up the entries of `breaks` and `statuses`, one each, in order.
    """

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.asked: list[str | None] = []
        self.breaks: list[int] = []
        """Hang up after this many bytes of the answer's body."""
        self.statuses: list[int] = []
        """Answer with this status and no file."""
        self.ignore_range = False
        self.range_shift = 0
        """Answer a Range as if it began this many bytes later."""
        self.declare_length = True
        self.before_answer: Callable[[], object] = lambda: None
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Write no log; tests read `asked` instead."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/file"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers["Range"]
        self.asked.append(asked)
        self.before_answer()
        if self.statuses:
            handler.send_error(self.statuses.pop(0))
            return
        start = 0
        if asked and not self.ignore_range:
            start = int(asked.removeprefix("bytes=").removesuffix("-")) + self.range_shift
        if asked and start >= len(self.body):
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        if start:
            span = f"bytes {start}-{len(self.body) - 1}/{len(self.body)}"
            handler.send_header("Content-Range", span)
        sent = self.body[start:]
        if self.declare_length:
            handler.send_header("Content-Length", str(len(sent)))
        handler.end_headers()
        handler.wfile.write(sent[: self.breaks.pop(0)] if self.breaks else sent)
