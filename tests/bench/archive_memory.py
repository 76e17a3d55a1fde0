"""Measure the memory that archives of 20,000 images take: written, walked, looked up and read, and
that of a ZIP of the results of a job.

    python -m tests.bench.archive_memory [members]

An archive of small files is written piece by piece to a temporary file, then all members are read,
then found by name. tracemalloc gives the peak of Python's allocations of each step, beside which
there is only the page cache. The same for zipfile's own reader. The last line is JSON.
"""

import asyncio
import base64
import json
import sys
import tempfile
import tracemalloc
import zipfile
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path

from app.archives.reading import open_archive
from app.archives.zip_writer import ZipWriter
from app.jobs.results import ResultsZip

CONTENT = bytes(range(256)) * 16


def name(n: int) -> str:
    """Return the name of a member, of the length that photos have."""
    return f"2026/photos/IMG_{n:08}.jpg"


def write(path: Path, members: int) -> None:
    """Write a ZIP by Darkroom's writer."""
    with path.open("wb") as file, ZipWriter() as archive:
        for n in range(members):
            file.write(archive.begin(name(n), len(CONTENT)))
            archive.add(CONTENT)
            file.write(CONTENT)
            file.write(archive.end())
        file.writelines(archive.finish())


def read(path: Path) -> None:
    """Read all members in their order."""
    with open_archive(path) as archive:
        for member in archive.members():
            assert archive.read(member, 1 << 20) == CONTENT


def find(path: Path, members: int) -> None:
    """Look up a hundred names, for which an index of all is made."""
    with open_archive(path) as archive:
        assert all(archive.find(name(n)) for n in range(0, members, max(1, members // 100)))


def read_by_zipfile(path: Path) -> None:
    """Read all members by zipfile."""
    with zipfile.ZipFile(path) as archive:
        for each in archive.infolist():
            assert archive.read(each) == CONTENT


def write_results(path: Path, members: int) -> None:
    """Write the results of a job as a ZIP, by records that are made while they are read."""
    image = base64.b64encode(CONTENT).decode()
    shown = {"media_type": "image/png", "width": 64, "height": 64, "bytes": len(CONTENT)}

    async def records() -> AsyncGenerator[bytes, None]:
        for n in range(0, members, 50):
            each = [
                {"index": i, "id": name(i), "status": "ok", "image": {**shown, "data": image}}
                for i in range(n, min(n + 50, members))
            ]
            yield b"".join(json.dumps(record).encode() + b"\n" for record in each)

    async def write() -> None:
        with path.open("wb") as file:
            async for piece in ResultsZip(records).pieces():
                file.write(piece)

    asyncio.run(write())


def peak(step: Callable[[], None]) -> int:
    """Return the peak of allocated bytes during a step, beyond those before it."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        step()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def main() -> None:
    """Measure with the number of members that is given, and with a tenth of it."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    figures: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for members in (most // 10, most):
            path = Path(folder) / f"{members}.zip"
            results = path.with_suffix(".results.zip")
            steps = {
                "write": partial(write, path, members),
                "read": partial(read, path),
                "find": partial(find, path, members),
                "zipfile": partial(read_by_zipfile, path),
                "results": partial(write_results, results, members),
            }
            figures[str(members)] = {step: peak(run) for step, run in steps.items()}
            with zipfile.ZipFile(results) as archive:
                assert archive.read(f"images/{members - 1:04d}.png") == CONTENT
            print(members, figures[str(members)])
    print(json.dumps({"members": most, "peak_bytes": figures}))


if __name__ == "__main__":
    main()
