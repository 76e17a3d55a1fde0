"""Fetch images of folders and buckets, with the same bounds of size as those of URLs."""

import asyncio
from contextlib import aclosing

from app.intake.spool import Blob, Spool
from app.storage.storage import Storage
from models.settings import Settings


class StoredImages:
    """Reads images of allowed storage addresses, a bounded number at a time.

    `storage` is closed by `close`.
    """

    def __init__(self, storage: Storage, settings: Settings) -> None:
        self.storage = storage
        self._max_bytes = settings.max_image_bytes
        self._spool_bytes = settings.spool_bytes
        self._turns = asyncio.Semaphore(settings.fetch_concurrency)

    @classmethod
    def from_settings(cls, settings: Settings) -> "StoredImages":
        """Return the images that the operator allows; ValueError says which prefix is wrong."""
        return cls(Storage.from_settings(settings), settings)

    def close(self) -> None:
        """Accept no more addresses."""
        self.storage.close()

    async def fetch(self, address: str) -> Blob:
        """Return the bytes at an address; the caller closes them.

        Raises InvalidParameter, AddressRefused, NotFound, TooLarge, OriginFailed and
        OriginTimedOut.
        """
        location = self.storage.readable(address)
        async with self._turns, Spool(self._max_bytes, self._spool_bytes) as spool:
            async with aclosing(self.storage.pieces(location, self._max_bytes)) as pieces:
                async for piece in pieces:
                    await spool.write(piece)
            return await spool.finish()
