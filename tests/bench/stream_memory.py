"""Memory of a server while one stream of 100,000 lines is answered.

Method. A real server process, one connection. A thread sends the lines, each a small PNG as a data
URI, as a chunked body to `/info?colour=false`; the program reads the records meanwhile. Resident
memory is read from /proc after a tenth of the records and after all.

Run: python -m tests.bench.stream_memory [lines]. The last line is JSON.
"""

import base64
import json
import socket
import sys
import threading
import time
from pathlib import Path

from tests.pictures import png
from tests.server import PATIENCE, serving

TOGETHER = 100
"""Lines in one chunk."""


def resident(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024


def send(connection: socket.socket, lines: int) -> None:
    """Send the head of the request, then all lines."""
    head = b"POST /info?colour=false HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
    connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
    uri = "data:image/png;base64," + base64.b64encode(png(width=8, height=8)).decode()
    line = json.dumps({"id": "a", "data": uri}).encode() + b"\n"
    for start in range(0, lines, TOGETHER):
        chunk = line * min(TOGETHER, lines - start)
        connection.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
    connection.sendall(b"0\r\n\r\n")


def main() -> None:
    """Send the lines, and print the memory after a tenth of them and after all."""
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with (
        serving("--weights", "random", "--log-level", "error") as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection,
    ):
        idle, started = resident(server.process.pid), time.monotonic()
        sending = threading.Thread(target=send, args=(connection, lines))
        sending.start()
        answered, early, peak, good = 0, 0, 0, 0
        with connection.makefile("rb") as file:
            for text in file:
                if not text.startswith(b"{"):
                    continue
                answered += 1
                good += b'"status":"ok"' in text
                if answered % (lines // 100) == 0:
                    peak = max(peak, resident(server.process.pid))
                if answered == lines // 10:
                    early = resident(server.process.pid)
        sending.join()
        late, seconds = resident(server.process.pid), time.monotonic() - started
    figures = {"idle": idle, "after_a_tenth": early, "after_all": late, "peak": peak}
    print({name: f"{n_bytes / 1e6:.1f} MB" for name, n_bytes in figures.items()})
    result = {"benchmark": "stream_memory", "lines": lines, "answered": answered, "good": good}
    print(json.dumps(result | {"seconds": round(seconds, 1), "resident_bytes": figures}))


if __name__ == "__main__":
    main()
