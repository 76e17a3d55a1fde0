"""Decode an image that waits for memory, and once more if it takes more than its header told."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Protocol

from app.decoders import Seen
from app.pipeline.file_decoder import Accept, Found
from models.codec import Decoded

Room = Callable[[Seen], int]
Memory = Callable[[Seen], int]
"""Map a header: `Room` to the pixels that are taken from the budget, `Memory` to the most bytes."""

Turn = Callable[[Seen], AbstractAsyncContextManager[None]]


class Decode(Protocol):
    """Decoding of one file, which may be asked for several times (`file_decoder.Decoding`)."""

    async def __call__(self, accept: Accept, *, large: bool = True) -> Found | None:
        """Return the image if `accept` agrees, else its header; None for a file that is too large
        unless `large`.
        """


async def in_turn(
    found: Seen, decode: Decode, turn: Turn, held: AsyncExitStack, *, large: bool
) -> Decoded | None:
    """Decode an image that has waited; a damaged JPEG, which takes more memory, waits once more.

    Unless `large`, return None for a large one, which waits for the memory of opening it first.
    """
    async with turn(found):
        decoded = await decode(lambda seen: seen.memory <= found.memory, large=large)
    if isinstance(decoded, Seen):
        await held.aclose()
        async with turn(decoded):
            decoded = await decode(lambda _seen: True)
    assert not isinstance(decoded, Seen)
    return decoded
