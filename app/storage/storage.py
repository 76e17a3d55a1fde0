"""Storage as the rest of the server sees it: checked locations that are read, listed and written.

Only prefixes of `DARKROOM_STORAGE_ALLOW` are read and listed, and only prefixes of
`DARKROOM_STORAGE_ALLOW_WRITE` are written to.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from app.storage import buckets, local_files
from app.storage.location import Location, parse
from models.domain.errors import AddressRefused, OriginTimedOut, ServiceError
from models.settings import Settings

THREADS = 8
"""Threads that read and write local files: a folder on a stuck network disk stops no other work."""

AT_ONCE = 256
"""Names that a thread lists before it hands them over."""

PIECES = 2
"""Pieces of a file that a thread reads before it hands them over; a small file takes one thread."""

T = TypeVar("T")


READ, WRITE = "DARKROOM_STORAGE_ALLOW", "DARKROOM_STORAGE_ALLOW_WRITE"
"""The settings with the prefixes that may be read and listed, and written to."""


class Storage:
    """Reads, lists and writes below prefixes that are allowed by setting (READ and WRITE).

    `timeout` bounds reading one file, in seconds, and waiting for one page of a listing.
    """

    def __init__(self, allowed: Mapping[str, Sequence[Location]], timeout: float = 20.0) -> None:
        self._allowed = allowed
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(THREADS, "storage")

    @classmethod
    def from_settings(cls, settings: Settings) -> "Storage":
        """Return the storage that the operator allows; ValueError names the mistake."""
        given = {READ: settings.storage_allow, WRITE: settings.storage_allow_write}
        allowed = {
            setting: [_prefix(text, setting, settings.data_folder) for text in prefixes]
            for setting, prefixes in given.items()
        }
        return cls(allowed, settings.fetch_total_timeout)

    def readable(self, address: str) -> Location:
        """Return the location of an address that may be read or listed.

        Raises InvalidParameter for text that is no address, and AddressRefused.
        """
        location = parse(address)
        self._root(location, READ)
        return location

    def writable(self, address: str) -> Location:
        """Return the location of an address that may be written to, with the same errors."""
        location = parse(address)
        self._root(location, WRITE)
        return location

    def pieces(self, location: Location, limit: int) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file, about 1 MiB at a time.

        Raises AddressRefused, NotFound, TooLarge for more than `limit` bytes, OriginFailed, and
        OriginTimedOut. The time in which the caller holds a piece does not count.
        """
        root = self._root(location, READ)
        if location.scheme == "file":
            files = local_files.pieces(location, root, limit)
            source = self._on_thread(files, PIECES)
        else:
            source = buckets.pieces(location, limit)
        return self._in_time(source, location)

    def list(self, location: Location) -> AsyncGenerator[str, None]:
        """Yield the names of the files below `location` as they are found, in constant memory.

        Raises AddressRefused, NotFound (local folders only; a bucket has no empty folders),
        OriginFailed and OriginTimedOut.
        """
        root = self._root(location, READ)
        if location.scheme == "file":
            source = self._on_thread(local_files.entries(location, root), AT_ONCE)
        else:
            source = buckets.entries(location)
        return self._in_time(source, location)

    async def write(self, location: Location, content: bytes | AsyncIterable[bytes]) -> None:
        """Make or replace a file; readers see all of it or nothing.

        Raises AddressRefused, StorageFull for a full disk, OriginFailed, and InvalidParameter where
        a part of the way is no folder.
        """
        root = self._root(location, WRITE)
        if location.scheme != "file":
            await buckets.write(location, content)
            return
        writer = local_files.writing(location, root)
        try:
            await self._run(partial(next, writer))
            if isinstance(content, bytes):
                if content:  # an empty piece is the end
                    await self._run(partial(writer.send, content))
            else:
                async for piece in content:
                    if piece:
                        await self._run(partial(writer.send, piece))
            await self._run(partial(next, writer, None))
        except BaseException:
            self._close(writer)
            raise

    async def check_folder(self, folder: Location) -> None:
        """Raise InvalidParameter if no file can be written below `folder`, because it is a file.

        Raises AddressRefused, OriginFailed and OriginTimedOut too. Buckets have no folders.
        """
        root = self._root(folder, WRITE)
        if folder.scheme == "file":
            try:
                async with asyncio.timeout(self._timeout):  # a client waits for this
                    await self._run(partial(local_files.check_folder, folder, root))
            except TimeoutError:
                raise self._silent(folder) from None

    def close(self) -> None:
        """Accept no more work; threads finish their work, for example remove unfinished files."""
        self._threads.shutdown(wait=False)

    def _root(self, location: Location, setting: str) -> Location:
        """Return the first allowed prefix that a location is in; raises AddressRefused."""
        for prefix in self._allowed[setting]:
            if location.within(prefix):
                return prefix
        raise AddressRefused(
            f"{location.root}: this storage address is not allowed here; the operator allows "
            f"prefixes with {setting}"
        )

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def _close(self, source: Generator[Any, Any, None]) -> None:
        """Close a generator on a thread; a generator that runs now is deleted, and ends, after."""
        with suppress(RuntimeError):  # the threads have ended: so has what they held
            self._threads.submit(source.close)

    async def _on_thread(self, source: Generator[T, None, None], n: int) -> AsyncGenerator[T, None]:
        """Yield from a blocking generator, which runs on a thread for `n` items at a time."""
        try:
            while taken := await self._run(lambda: [*islice(source, n)]):
                for each in taken:
                    yield each
                if len(taken) < n:
                    return
        except BaseException:
            self._close(source)
            raise

    async def _in_time(
        self, source: AsyncGenerator[T, None], location: Location
    ) -> AsyncGenerator[T, None]:
        """Yield from `source`; raise OriginTimedOut when one step takes too long."""
        async with aclosing(source):
            while True:
                try:
                    async with asyncio.timeout(self._timeout):
                        found = await anext(source)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    raise self._silent(location) from None
                yield found

    def _silent(self, location: Location) -> OriginTimedOut:
        return OriginTimedOut(f"{location.root} did not answer for {self._timeout:g} seconds")


def _prefix(text: str, setting: str, data_folder: Path | None) -> Location:
    """Return a prefix of a setting; ValueError names the mistake.

    No prefix may contain the data folder or lie in it: that has the images and results of all
    clients.
    """
    try:
        location = parse(text)
    except ServiceError as error:
        raise ValueError(f"{setting}: {text!r}: {error.detail}") from None
    if location.scheme != "file" and not buckets.installed():
        raise ValueError(f"{setting}: {buckets.MISSING}")
    if location.scheme == "file" and not location.parts:
        raise ValueError(f"{setting}: {text!r} is all of the disk; name a folder")
    if location.scheme == "file" and data_folder and _overlap(location, data_folder):
        raise ValueError(
            f"{setting}: {text!r} overlaps DARKROOM_DATA_FOLDER {data_folder}, where the "
            "images of all clients are; choose folders beside each other"
        )
    return location


def _overlap(location: Location, folder: Path) -> bool:
    """Return whether two folders are the same or lie in each other; links are followed."""
    allowed, kept = Path("/", location.key).resolve(), folder.resolve()
    return allowed.is_relative_to(kept) or kept.is_relative_to(allowed)
