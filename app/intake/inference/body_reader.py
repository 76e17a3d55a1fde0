"""Read a body forward by numbers of bytes."""

from collections.abc import AsyncGenerator, AsyncIterator

from models.domain.errors import MalformedRequest


class BodyReader:
    """Gives the bytes of a body in its order, in pieces of known sizes."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""
        self._place = 0

    async def pieces(self, n: int) -> AsyncGenerator[bytes, None]:
        """Yield the next `n` bytes; raises MalformedRequest if the body ends before."""
        left = n
        while left:
            if not self._rest:
                self._rest = await self._next(left)
            piece, self._rest = self._rest[:left], self._rest[left:]
            self._place += len(piece)
            left -= len(piece)
            yield piece

    async def take(self, n: int) -> bytes:
        """Return the next `n` bytes, of which there are few."""
        return b"".join([piece async for piece in self.pieces(n)])

    async def end(self) -> None:
        """Read the end of the body; raises MalformedRequest if there are more bytes."""
        error = MalformedRequest(
            f"the body goes on after its tensors, which end at byte {self._place}"
        )
        if self._rest:
            raise error
        async for chunk in self._chunks:
            if chunk:
                raise error

    async def _next(self, left: int) -> bytes:
        async for chunk in self._chunks:
            if chunk:
                return chunk
        raise MalformedRequest(
            f"the body ends after {self._place} bytes, {left} before the end of its tensors"
        )
