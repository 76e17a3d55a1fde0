"""Measure the memory that a server takes for the manifest of a job of a million images.

    python -m tests.bench.manifest_memory [lines]

A server with one process is idle. A manifest of this many lines, with a tenth of them before, is
sent as a stream. The kernel's record of the server's largest resident set (VmHWM) is reset before,
and read when the answer has come: then the manifest is on disk and its chunks are in the database.
The job is removed. `over_idle_bytes` is that record less the resident set of the idle server. The
last line is JSON.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from tests.bench.subject import answers, started
from tests.ports import free_port
from tests.server import NO_TLS, PATIENCE

LINES_AT_ONCE = 1000


def lines(n: int) -> Iterator[bytes]:
    """Yield a manifest of photos with ids, of the length that such lines have."""
    for start in range(0, n, LINES_AT_ONCE):
        yield b"".join(
            b'{"id":"photo-%08d","url":"https://example.org/photos/IMG_%08d.jpg"}\n' % (each, each)
            for each in range(start, min(start + LINES_AT_ONCE, n))
        )


def resident(pid: int, field: str) -> int:
    """Return the bytes of a field of a process's memory: VmRSS now, VmHWM at most."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the kernel has no {field}")


def measured(client: httpx.Client, pid: int, n: int) -> int:
    """Return the bytes that a manifest of `n` lines takes beyond those of the idle server."""
    idle = resident(pid, "VmRSS")
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the largest set begins anew
    headers = {"Content-Type": "application/x-ndjson"}
    reply = client.post("/jobs?operation=classify", content=lines(n), headers=headers)
    reply.raise_for_status()
    most = resident(pid, "VmHWM")
    client.delete(reply.headers["Location"])
    client.delete(reply.headers["Location"])
    return most - idle


def main() -> None:
    """Measure a tenth of the lines, then all."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    port = free_port()
    with TemporaryDirectory() as name:
        command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), "--gpus", "0"]
        command += ["--weights", "random", "--front-ends", "0", "--log-level", "warning"]
        command += ["--data-folder", f"{name}/data"]
        with (
            started(command, port, Path(name) / "log", answers("/readyz"), 180) as subject,
            httpx.Client(
                base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, verify=NO_TLS
            ) as client,
        ):
            figures = {str(n): measured(client, subject.process.pid, n) for n in (most // 10, most)}
    print(json.dumps({"lines": most, "over_idle_bytes": figures}))


if __name__ == "__main__":
    main()
