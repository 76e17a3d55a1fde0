"""Digests of the contents of images, computed on a thread where they would hold the event loop."""

import asyncio
from collections.abc import Iterable

from app.intake.spool import Blob

AT_ONCE = 1 << 17
"""Largest content, in bytes, that is digested on the event loop: 0.07 ms, as long as to hand it to
a thread. After as many bytes of several contents, other work of the event loop gets its turn."""


class Digester:
    """Digests contents on one event loop, of small ones at most AT_ONCE bytes in a turn of it."""

    def __init__(self) -> None:
        self._order = asyncio.Lock()
        self._held = 0

    async def digest_of(self, blob: Blob) -> bytes:
        """Return the SHA-256 of the content of a blob."""
        if blob.size > AT_ONCE or blob.on_disk:
            return await asyncio.to_thread(blob.digest)
        async with self._order:  # the others wait in line, one for each turn of the loop
            if self._held + blob.size > AT_ONCE:
                await asyncio.sleep(0)
                self._held = 0
            self._held += blob.size
            return blob.digest()


async def digests_of(blobs: Iterable[Blob]) -> list[bytes]:
    """Return the SHA-256 of each content; the event loop does other work between them."""
    digester = Digester()
    return [await digester.digest_of(blob) for blob in blobs]
