"""States of the JPEG decoders that are made while the engine serves.

One state takes 0.1 to 0.3 s, and there are ten shared ones. Batches wait meanwhile, because the
driver has one lock for both: when all states were made after the start, at that time 33, that held
the lock for 38 % of the first eight seconds of a command (H200). So under load a state is made only
when filling up batches to a larger size has cost something, and then not for a while: four workers
of two H200 that made them one after the other spent a quarter of a core each in the kernel, in
their first seconds of load. While nothing is decoded all of them are made.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat

import numpy as np
import torch

from models.domain.image import Jpeg
from workers.engines.cuda.late_parts import PAUSE, Part
from workers.engines.cuda.nvjpeg.decoder import DESTINATION, NvJpeg
from workers.engines.cuda.nvjpeg.shared_states import SharedStates
from workers.engines.cuda.slot import Region
from workers.engines.cuda.sources import SOURCE, planes
from workers.engines.cuda.streams import CAPTURING

SURPLUS = 192
"""Files that were decoded again to fill batches up, from which a state is worth making."""

REST = 2
"""How many times as long as a state took the next one under load waits."""

TRIES = 3
"""Attempts to make a state of one size. Each that fails may keep memory of the device, so more of
them would in the end take what batches need."""


class LateStates:
    """Makes the states of `sizes` files that `shared` lacks, and tries each one.

    `file` is decoded for that, into memory and on a stream of its own.
    """

    def __init__(
        self,
        library: NvJpeg,
        shared: SharedStates,
        sizes: Collection[int],
        file: Jpeg,
        device: torch.device,
    ) -> None:
        self._nvjpeg, self._shared, self._sizes, self._file = library, shared, sizes, file
        self._took = 0.0
        self._begun: Counter[int] = Counter()
        with CAPTURING:
            self._region = Region(4 * file.n_pixels + (1 << 16), device)
            self._stream = torch.cuda.Stream(device)

    def parts(self) -> Iterator[Part]:
        """Yield what makes the next state, or does nothing while none is needed, to the last.

        A size whose state cannot be made is left out.
        """
        before = -1
        while left := self._left():
            batches = self._shared.batches
            idle, before = batches == before, batches
            if n := needed(self._shared.surplus, self._shared.sizes, left):
                yield self._begin(n)
                yield from repeat(_nothing, int(REST * self._took / PAUSE))
            elif idle:
                yield self._begin(max(left))
            else:
                yield _nothing

    def _left(self) -> set[int]:
        """Return the sizes without a state that have not failed too often."""
        missing = set(self._sizes) - set(self._shared.sizes)
        return {n for n in missing if self._begun[n] < TRIES}

    def _begin(self, n: int) -> Part:
        self._begun[n] += 1
        return partial(self._add, n)

    def _add(self, n: int) -> None:
        """Make a state for `n` files, decode the file with it to one place, and share it.

        Raises NvJpegError; batches of `n` files are filled up to the next size then.
        """
        started = time.monotonic()
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
            state = self._nvjpeg.state(n)
            self._nvjpeg.decode(state, addresses, lengths, destinations, self._stream.cuda_stream)
            self._stream.synchronize()
        self._shared.add(n, state)
        self._took = time.monotonic() - started


def needed(surplus: Mapping[int, int], there: Iterable[int], left: Collection[int]) -> int | None:
    """Return the one of the sizes `left` that would have saved the most files, or None below
    SURPLUS.

    `surplus` are the files that filled batches up, by the files of a batch; each of these would
    have taken the smallest size of those `there` and `left` that it fits into.
    """
    sizes = {*there, *left}
    saved: Counter[int] = Counter()
    for n, files in surplus.items():
        size = min((each for each in sizes if each >= n), default=None)
        if size is not None and size in left:
            saved[size] += files
    best = saved.most_common(1)
    return best[0][0] if best and best[0][1] >= SURPLUS else None


def _nothing() -> None:
    """Do nothing."""
