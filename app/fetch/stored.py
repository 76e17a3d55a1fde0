"""Fetch images of folders and buckets, with the same bounds of size as those of URLs."""

from contextlib import aclosing

from app.admission.fair_queue import FairSemaphore, times_free
from app.fetch.keyed_limiter import PART
from app.intake.spool import Blob, Spool
from app.storage.storage import Storage
from models.settings import Settings


class StoredImages:
    """Reads images of allowed storage addresses, a bounded number at a time, in which each client
    has the share that it has of URLs.

    `storage` is closed by `close`.
    """

    def __init__(self, storage: Storage, settings: Settings) -> None:
        self.storage = storage
        self._max_bytes = settings.max_image_bytes
        self._spool_bytes = settings.spool_bytes
        self._turns = FairSemaphore(settings.fetch_concurrency, times_free(PART))

    @classmethod
    def from_settings(cls, settings: Settings) -> "StoredImages":
        """Return the images that the operator allows; ValueError says which prefix is wrong."""
        return cls(Storage.from_settings(settings), settings)

    def close(self) -> None:
        """Accept no more addresses."""
        self.storage.close()

    def set_concurrency(self, total: int) -> None:
        """Change how many are read at a time; those in progress continue."""
        self._turns.set_total(total)

    async def fetch(self, address: str, client: str = "") -> Blob:
        """Return the bytes at an address; the caller closes them.

        `client` is the one whose share it takes; without one, each address has a share.

        Raises InvalidParameter, AddressRefused, NotFound, TooLarge, OriginFailed and
        OriginTimedOut.
        """
        location = self.storage.readable(address)
        turn = self._turns.hold(client or address)
        async with turn, Spool(self._max_bytes, self._spool_bytes) as spool:
            async with aclosing(self.storage.pieces(location, self._max_bytes)) as pieces:
                async for piece in pieces:
                    await spool.write(piece)
            return await spool.finish()
