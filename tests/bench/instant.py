"""A server that answers forms at once: beside it the cost of a client shows.

Each image has the same record of five labels, and `/models` names a network.
"""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import uvloop

LABELS = [{"label": f"label {n}", "class_id": n, "score": 0.9 - n / 10} for n in range(5)]
NETWORK = {
    "name": "resnet18",
    "sha256": "ab12",
    "label_set": "own",
    "n_classes": 1,
    "random": False,
    "preprocessing": 1,
    "precision": "fp32",
    "device": "cpu",
    "features": 512,
    "classes": [{"class_id": 0, "label": "cat"}],
}
NETWORKS = json.dumps({"models": [NETWORK]}).encode()
REST = json.dumps({"source": "image", "status": "ok", "predictions": LABELS})[1:]
RECORDS = [f'{{"index": {number}, {REST}\n'.encode() for number in range(64)]


class Instant(asyncio.Protocol):
    """A connection whose requests are answered as soon as their last byte has come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # of uvloop, which is no subclass
        self._data, self._end = bytearray(), 0

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not self._end:
            head, end, _ = bytes(self._data).partition(b"\r\n\r\n")
            if not end:
                return
            _, found, length = head.lower().partition(b"content-length:")
            self._end = len(head) + 4 + (int(length.split(b"\r")[0]) if found else 0)
        if len(self._data) >= self._end:
            count = self._data.count(b'name="files"')
            body = b"".join(RECORDS[:count]) if count else NETWORKS
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            self._transport.write(body)
            self._data, self._end = bytearray(), 0


@contextmanager
def serving() -> Iterator[str]:
    """Yield the URL of a server that ends with the block."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        words = [sys.executable, "-m", "tests.bench.instant", str(listener.fileno())]
        with subprocess.Popen(words, pass_fds=[listener.fileno()]) as process:
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                process.kill()


async def main() -> None:
    """Serve on the socket whose descriptor is the argument."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    server = await asyncio.get_running_loop().create_server(Instant, sock=listener)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
