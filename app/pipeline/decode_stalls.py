"""Notice that batches wait in vain for further images.

That is when no image is being decoded: because the next ones wait for memory, which images of those
batches hold, or because no next ones come.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class DecodeStalls:
    """Counts the images that are being decoded and those that wait for memory.

    `call`, if there is one, is called when only the latter are left, or no images at all; it is set
    before the first image comes. Lives on one event loop.
    """

    def __init__(self) -> None:
        self.call: Callable[[], None] | None = None
        self.none_comes: Callable[[], bool] = lambda: False
        """Returns whether no image will be decoded until one that is computed is done. A server
        cannot know that.
        """
        self._decoding = self._waiting = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count an image as waiting for memory while the block runs."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Count an image as being decoded while the block runs; then look for a stall when the
        image has gone on to what comes next.
        """
        self._decoding += 1
        try:
            yield
        finally:
            self._decoding -= 1
            if self.call is not None and not self._decoding:
                asyncio.get_running_loop().call_soon(self.look)

    def look(self) -> None:
        """Call `call` if no further image can be decoded before a batch has gone."""
        if self.call is None or self._decoding:
            return
        if self._waiting or self.none_comes():
            self.call()
