"""Memory after 20,000 mixed requests against memory after 2,000.

Method: a real server process; a closed-loop generator at concurrency 16 sends, in a fixed order,
classifications of photos, filter chains, a PNG, a truncated JPEG, an empty body and an image of the
wrong kind. Resident memory is read from /proc after 2,000 and after 20,000 requests, once the
server is idle. Run: python -m tests.bench.memory [--requests 20000]
"""

import argparse
import asyncio
import json
from pathlib import Path

from tests.bench import load
from tests.bench.images import jpegs
from tests.pictures import jpeg, png
from tests.server import serving


def mixed() -> list[bytes]:
    """Return a mixture of requests in which the bad ones are few."""
    _, photos = jpegs(24)
    kind = "application/octet-stream"
    requests = [load.raw_post("/classify", photo, kind) for photo in photos]
    small = [jpeg(n, 160 + n, 120) for n in range(8)]
    requests += [load.raw_post("/filter?name=gaussian_blur&sigma=2", s, kind) for s in small]
    requests += [load.raw_post("/filter?name=median&size=5&format=webp", s, kind) for s in small]
    requests += [load.raw_post("/classify", png(n), kind) for n in range(4)]
    broken = (photos[0][:2000], b"", b"neither an image nor anything else")
    return requests + [load.raw_post("/classify", body, kind) for body in broken]


def resident(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    line = next(
        x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS")
    )
    return int(line.split()[1]) * 1024


def main() -> None:
    """Run the command line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--requests", type=int, default=20_000)
    total = arguments.parse_args().requests
    requests = mixed()
    with serving("--weights", "random", "--log-level", "error") as server:
        first = total // 10
        asyncio.run(load.send(server.port, requests, 16, first))
        early = resident(server.process.pid)
        failures = asyncio.run(load.send(server.port, requests, 16, total - first))
        late = resident(server.process.pid)
    print(f"after {first}: {early / 1e6:.0f} MB; after {total}: {late / 1e6:.0f} MB")
    print(
        json.dumps(
            {
                "benchmark": "memory",
                "command": f"python -m tests.bench.memory --requests {total}",
                "requests": total,
                "answered_with_an_error": failures,
                "early_bytes": early,
                "late_bytes": late,
                "ratio": round(late / early, 4),
            }
        )
    )


if __name__ == "__main__":
    main()
