"""States of the JPEG decoders that are made while the engine already serves.

One state takes 0.1 s, and there is one for each slot and each of eleven sizes of a batch. Until a
state is added, the decoder fills batches of its size up to the next larger one.
"""

import logging
import threading
from collections.abc import Sequence

import numpy as np
import torch

from models.domain.image import Jpeg
from workers.engines.cuda.nvjpeg.decoder import DESTINATION, Decoder, NvJpegError
from workers.engines.cuda.slot import Region
from workers.engines.cuda.sources import SOURCE, planes
from workers.engines.cuda.streams import CAPTURING

log = logging.getLogger("darkroom.cuda")

PAUSE = 0.2
"""Seconds between two states: the driver makes them under a lock that batches need as well."""

END = 5.0
"""Seconds to wait for the thread, which ends after the state that it is making."""


class LateStates:
    """Makes the states for `sizes` of all `decoders` in a thread of its own, and tries each one.

    `file` is decoded for that, into memory and on a stream of this object.
    """

    def __init__(
        self, decoders: Sequence[Decoder], sizes: Sequence[int], file: Jpeg, device: torch.device
    ) -> None:
        self._decoders, self._sizes, self._file, self._device = decoders, sizes, file, device
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="decoder states", daemon=True)

    def start(self) -> None:
        """Begin; `close` ends it early."""
        self._thread.start()

    def close(self) -> None:
        """Make no further states, and wait for the thread."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(END)

    def _run(self) -> None:
        torch.cuda.set_device(self._device)
        with CAPTURING:
            region = Region(4 * self._file.n_pixels + (1 << 16), self._device)
            stream = torch.cuda.Stream(self._device)
        for n in self._sizes:
            for decoder in self._decoders:
                if self._closing.wait(PAUSE):
                    return
                try:
                    with CAPTURING:
                        self._add(decoder, n, region, stream)
                except NvJpegError:
                    log.exception("batches of %d JPEGs are filled up to the next size", n)

    def _add(self, decoder: Decoder, n: int, region: Region, stream: torch.cuda.Stream) -> None:
        """Make a state, decode the file with it `n` times to the same place, and add it."""
        region.used = 0
        row = np.zeros(1, SOURCE)
        row[0] = planes(self._file, region)
        destinations = np.zeros(n, DESTINATION)
        destinations["channel"][:, :3] = row["plane"]
        destinations["pitch"][:, :3] = row["pitch"]
        data = self._file.data
        addresses = np.full(n, data.__array_interface__["data"][0], np.uint64)
        lengths = np.full(n, len(data), np.uint64)
        state = decoder.state(n)
        decoder.run(state, addresses, lengths, destinations, stream.cuda_stream)
        stream.synchronize()
        decoder.add(n, state)
