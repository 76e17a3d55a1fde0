"""Receive the body that makes a job: to disk, piece by piece, checked as it comes."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.jobs.chunk_records import sync_folder
from app.jobs.files import MANIFEST
from app.jobs.json_list import JsonElements
from app.jobs.manifest import LONGEST_LINE, ManifestWriter
from app.jobs.store.values import Span
from models.domain.errors import TooLarge, UnsupportedMedia
from models.settings import Settings

JSON, JSON_LINES = "application/json", ("application/x-ndjson", "application/jsonl")

PIECE = 1 << 18
"""Bytes that are collected before a thread takes them; each turn of a thread costs some 50 µs."""


@dataclass(frozen=True, slots=True)
class Received:
    """A body on disk: its items, the bytes of its files, and the SHA-256 of what was sent."""

    total: int
    stored: int
    spans: list[Span]
    digest: str


async def receive(
    body: AsyncIterator[bytes], kind: str, folder: Path, settings: Settings, asked: bytes
) -> Received:
    """Write a body of media type `kind` into the folder of a new job; raises ServiceError.

    `asked` is part of the digest: the operation and its options.
    """
    if kind not in (JSON, *JSON_LINES):
        raise UnsupportedMedia(
            f"Content-Type is {kind or 'missing'}; a job is made of a manifest as "
            f"{JSON_LINES[0]} or {JSON}"
        )
    longest = LONGEST_LINE + settings.max_image_bytes * 4 // 3
    digest = hashlib.sha256(asked)
    writer = ManifestWriter(folder / MANIFEST, settings.max_job_items, longest)
    write, finish = _parser(writer, kind, longest)
    with closing(writer):
        async for piece in _pieces(body, settings.max_job_bytes):
            await asyncio.to_thread(_take, piece, digest.update, write)
        await asyncio.to_thread(finish)
        await asyncio.to_thread(sync_folder, folder)
    return Received(writer.total, writer.size, writer.spans, digest.hexdigest())


def _parser(
    writer: ManifestWriter, kind: str, longest: int
) -> tuple[Callable[[bytes], None], Callable[[], None]]:
    """Return what takes each piece of a body, and what ends it."""
    if kind != JSON:
        return writer.write, writer.finish
    elements = JsonElements(longest)

    def write(piece: bytes) -> None:
        for each in elements.write(piece):
            writer.line(each)

    def finish() -> None:
        elements.finish()
        writer.finish()

    return write, finish


def _take(piece: bytes, update: Callable[[bytes], None], write: Callable[[bytes], None]) -> None:
    update(piece)
    write(piece)


async def _pieces(body: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """Yield a body in larger pieces; raises TooLarge with the first byte over `most`."""
    collected, size = bytearray(), 0
    async for chunk in body:
        size += len(chunk)
        if size > most:
            raise too_large(most)
        collected += chunk
        if len(collected) >= PIECE:
            yield bytes(collected)
            collected.clear()
    if collected:
        yield bytes(collected)


def too_large(most: int) -> TooLarge:
    """Return the error for a body of more than `most` bytes."""
    return TooLarge(
        f"the body has more than {most} bytes (DARKROOM_MAX_JOB_BYTES); make several jobs"
    )
