"""States of the JPEG decoders that are made while the engine serves.

One state takes 0.1 to 0.3 s, and there are eleven sizes of a batch for each slot. Batches wait
meanwhile, because the driver has one lock for both: when all states were made after the start, that
held the lock for 38 % of the first eight seconds of a command (H200). So under load a state is made
only when filling up batches to a larger size has cost something, and then not for a while: four
workers of two H200 that made them one after the other spent a quarter of a core each in the kernel,
in their first seconds of load. While nothing is decoded all of them are made.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat

import numpy as np
import torch

from models.domain.image import Jpeg
from workers.engines.cuda.late_parts import PAUSE, Part
from workers.engines.cuda.nvjpeg.decoder import DESTINATION, Decoder
from workers.engines.cuda.slot import Region
from workers.engines.cuda.sources import SOURCE, planes
from workers.engines.cuda.streams import CAPTURING

SURPLUS = 192
"""Files that a decoder has decoded again to fill batches up, from which a state is worth making."""

REST = 2
"""How many times as long as a state took the next one under load waits."""

TRIES = 3
"""Attempts to make a state of one size. Each that fails may keep memory of the device, so more of
them would in the end take what batches need."""


class LateStates:
    """Makes states of `sizes` files for `decoders`, and tries each one.

    `file` is decoded for that, into memory and on a stream of its own.
    """

    def __init__(
        self, decoders: Sequence[Decoder], sizes: Sequence[int], file: Jpeg, device: torch.device
    ) -> None:
        self._decoders, self._sizes, self._file = decoders, sizes, file
        self._took = 0.0
        self._begun: Counter[tuple[Decoder, int]] = Counter()
        with CAPTURING:
            self._region = Region(4 * file.n_pixels + (1 << 16), device)
            self._stream = torch.cuda.Stream(device)

    def parts(self) -> Iterator[Part]:
        """Yield what makes the next state, or does nothing while none is needed, to the last.

        A size whose state cannot be made is left out.
        """
        before = -1
        while any(self._left(each) for each in self._decoders):
            batches = sum(each.batches for each in self._decoders)
            idle, before = batches == before, batches
            for decoder in self._decoders:
                left = self._left(decoder)
                if n := needed(decoder, sorted(left.union(decoder.sizes))):
                    yield self._begin(decoder, n)
                    yield from repeat(_nothing, int(REST * self._took / PAUSE))
                elif idle and left:
                    yield self._begin(decoder, max(left))
                else:
                    yield _nothing

    def _left(self, decoder: Decoder) -> set[int]:
        """Return the sizes without a state that have not failed too often."""
        every = missing(decoder, self._sizes)
        return {n for n in every if self._begun[decoder, n] < TRIES}

    def _begin(self, decoder: Decoder, n: int) -> Part:
        self._begun[decoder, n] += 1
        return partial(self._add, decoder, n)

    def _add(self, decoder: Decoder, n: int) -> None:
        """Make a state for `n` files, decode the file with it to one place, and add it.

        Raises NvJpegError; batches of `n` files are filled up to the next size then.
        """
        started = time.monotonic()
        decoder.surplus.clear()
        self._region.used = 0
        row = np.zeros(1, SOURCE)
        row[0] = planes(self._file, self._region)
        destinations = np.zeros(n, DESTINATION)
        destinations["channel"][:, :3] = row["plane"]
        destinations["pitch"][:, :3] = row["pitch"]
        data = self._file.data
        addresses = np.full(n, data.__array_interface__["data"][0], np.uint64)
        lengths = np.full(n, len(data), np.uint64)
        with CAPTURING:
            state = decoder.state(n)
            decoder.run(state, addresses, lengths, destinations, self._stream.cuda_stream)
            self._stream.synchronize()
        decoder.add(n, state)
        self._took = time.monotonic() - started


def missing(decoder: Decoder, sizes: Sequence[int]) -> set[int]:
    """Return the sizes for which a decoder has no state."""
    return set(sizes) - set(decoder.sizes)


def needed(decoder: Decoder, sizes: Sequence[int]) -> int | None:
    """Return the size without a state that would have saved the most files, or None below SURPLUS.

    The launch thread counts in `decoder.surplus` meanwhile, so this looks at a copy.
    """
    saved: Counter[int] = Counter()
    for n, surplus in dict(decoder.surplus).items():
        size = min(each for each in sizes if each >= n)
        if size not in decoder.sizes:
            saved[size] += surplus
    best = saved.most_common(1)
    return best[0][0] if best and best[0][1] >= SURPLUS else None


def _nothing() -> None:
    """Do nothing."""
