"""Forward passes on CPU cores: each on one core, side by side, or a single one on all cores."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import torch
from numpy.typing import NDArray

from workers.engines.cpu.slot import Crops

Forward = Callable[[Crops], NDArray[np.float32]]
"""A forward pass: it maps crops to float32 (n, values)."""


class ForwardPasses:
    """Runs forward passes of any network; `threads` cores share one that runs alone.

    The thread of single passes keeps its OpenMP team warm. The team belongs to the calling thread,
    so the passes of other threads stay on their own core. All networks share that thread: every
    team would otherwise keep threads of its own.
    """

    def __init__(self, threads: int) -> None:
        self._solo = ThreadPoolExecutor(1, "solo", torch.set_num_threads, (threads,))

    def on_all_cores(self, forward: Forward, crops: Crops) -> NDArray[np.float32]:
        """Run the pass on all cores."""
        return self._solo.submit(forward, crops).result()

    def on_this_core(self, forward: Forward, crops: Crops) -> NDArray[np.float32]:
        """Run the pass in the calling thread alone."""
        torch.set_num_threads(1)
        return forward(crops)

    def side_by_side(self, forward: Forward, crops: Crops, threads: int) -> None:
        """Run the pass on new threads at the same time, so that their memory is allocated."""
        with ThreadPoolExecutor(threads) as pool:
            together = Barrier(threads)

            def run() -> None:
                together.wait()
                self.on_this_core(forward, crops)

            for each in [pool.submit(run) for _ in range(threads)]:
                each.result()

    def close(self) -> None:
        """End the thread of single passes."""
        self._solo.shutdown(wait=False)
