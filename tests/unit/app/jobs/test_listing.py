import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from app.jobs.files import MANIFEST
from app.jobs.listing import failed_lines, failed_records, made_of
from app.jobs.manifest import Line, StoredLine
from models.domain.errors import InternalError
from models.settings import Settings

RECORDS = b"".join(
    json.dumps({"index": n, "status": "error" if n % 3 == 0 else "ok", "x": "é" * n}).encode()
    + b"\n"
    for n in reversed(range(50))
)


async def pieces(size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(RECORDS), size):
        yield RECORDS[start : start + size]


def test_failed_items_are_found_in_records_of_any_order(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.jsonl"
    given = [
        {"url": f"https://a.example/{n}"} | ({"id": f"i{n}"} if n % 2 else {}) for n in range(50)
    ]
    manifest.write_text("".join(json.dumps(each) + "\n" for each in given))

    async def main() -> list[Line]:
        return [line async for line in failed_lines(pieces(7), manifest, 50)]

    found = asyncio.run(main())
    assert [line.url for line in found] == [f"https://a.example/{n}" for n in range(0, 50, 3)]
    assert [line.id for line in found] == [f"i{n}" if n % 2 else f"{n}" for n in range(0, 50, 3)]


def test_items_without_a_record_are_found_if_they_are_asked_for(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.jsonl"
    lines = [json.dumps({"url": f"https://a.example/{n}"}) + "\n" for n in range(60)]
    manifest.write_text("".join(lines))

    async def main() -> list[Line]:
        found = failed_lines(pieces(7), manifest, 60, unrecorded=True)
        return [line async for line in found]

    numbers = [int((line.id or "").partition(" ")[0]) for line in asyncio.run(main())]
    assert numbers == [*range(0, 50, 3), *range(50, 60)]


def test_a_damaged_manifest_is_an_error_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text('{"url": "https://a.exam')

    async def main() -> None:
        with pytest.raises(InternalError, match="damaged"):
            async for _ in failed_lines(pieces(7), tmp_path / "manifest.jsonl", 50):
                pass

    asyncio.run(main())


def test_records_that_failed_are_sent_whole() -> None:
    async def main() -> bytes:
        return b"".join([bytes(piece) async for piece in failed_records(pieces(11))])

    found = [json.loads(line)["index"] for line in asyncio.run(main()).splitlines()]
    assert found == [n for n in reversed(range(50)) if n % 3 == 0]


def test_a_job_without_a_manifest_has_the_chunks_of_its_server_and_counts_its_bytes(
    tmp_path: Path,
) -> None:
    async def lines() -> AsyncIterator[StoredLine]:
        for number in range(500):
            yield StoredLine(url=f"https://a.example/{number}")

    written: list[int] = []
    made = made_of(lines(), tmp_path, Settings(), b"", 200, "nothing", written.append)
    received = asyncio.run(made)
    assert [each.count for each in received.spans] == [200, 200, 100]
    assert len(written) == 500
    assert sum(written) == (tmp_path / MANIFEST).stat().st_size < received.stored


def test_a_record_of_many_pieces_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look copies what has come: a record with images has hundreds of pieces."""
    looks: list[object] = []
    to_thread = asyncio.to_thread

    async def counted(function: Callable[..., Any], *given: Any) -> Any:
        looks.append(function)
        return await to_thread(function, *given)

    monkeypatch.setattr(asyncio, "to_thread", counted)

    async def record() -> AsyncIterator[bytes]:
        yield b'{"index": 0, "status": "error", "x": "'
        for _ in range(1000):
            yield b"x" * 100
        yield b'"}\n'

    async def main() -> bytes:
        return b"".join([bytes(piece) async for piece in failed_records(record())])

    assert len(asyncio.run(main())) > 100_000
    assert len(looks) == 1
