"""The items of a stream that are under way: flow control between its reader and its answers."""

import asyncio


class StreamWindow:
    """Room for `size` items, from before an item is read until its answer has been sent.

    `in_flight` counts items that were read and are not answered; while there are some, the client
    may be waiting for the server. `inside_item` is true while an item has arrived in part. `left`
    is set when the client has left.
    """

    def __init__(self, size: int) -> None:
        self._room = asyncio.Semaphore(size)
        self.in_flight = 0
        self.inside_item = False
        self.left = asyncio.Event()

    async def room(self) -> None:
        """Wait for room for the next item, and take it."""
        await self._room.acquire()

    def begin(self) -> None:
        """Count an item that was read; it has room already."""
        self.in_flight += 1

    def end(self) -> None:
        """Give the room of an item back, because its answer has been sent."""
        self.in_flight -= 1
        self._room.release()
