"""CPU time of an image whose result is computed, and of one whose result is kept by content.

Method. A server of one process and one thread gets drawings of 500 × 375 pixels as JPEGs, one after
the other: first each for the first time, then the same ones again, three times, of which the
fastest counts. The result is CPU seconds of the server process by /proc, divided by the images.

Run: python -m tests.bench.result_cache [--images 60]
"""

import argparse
import json
import os
import sys
from pathlib import Path

import httpx

from tests.pictures import drawing, encoded
from tests.server import PATIENCE, serving

PATHS = ("/classify", "/filter?name=sepia")
FLAGS = ("--weights", "random", "--precision", "fp32", "--threads", "1", "--log-level", "error")
CACHE = ("--result-cache", str(64 << 20))
RAW = {"Content-Type": "image/jpeg"}


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(path: str, photos: list[bytes]) -> dict[str, float]:
    """Return CPU milliseconds of an image that is computed, and of one whose result is kept."""
    with serving(*FLAGS, *CACHE) as server:
        url = f"http://127.0.0.1:{server.port}"
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:

            def window() -> float:
                before = cpu_seconds(server.process.pid)
                for photo in photos:
                    client.post(path, content=photo, headers=RAW).raise_for_status()
                return (cpu_seconds(server.process.pid) - before) / len(photos) * 1e3

            computed = window()
            kept = min(window() for _ in range(3))
    return {"computed_ms": round(computed, 2), "kept_ms": round(kept, 2)}


def main() -> int:
    """Measure all paths; print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=60)
    options = parser.parse_args()
    photos = [encoded(drawing(500, 375, n), quality=92) for n in range(options.images)]
    found = {
        "benchmark": "result_cache",
        "images": options.images,
        "bytes": sum(map(len, photos)) // len(photos),
        **{path: measured(path, photos) for path in PATHS},
    }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
