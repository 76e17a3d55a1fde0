"""Forward passes on threads."""

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")

from workers.engines.cpu.engine import Crops
from workers.engines.cpu.network import ForwardPasses


def test_passes_side_by_side_run_at_the_same_time_each_on_a_thread_of_its_own() -> None:
    together, threads = threading.Barrier(2, timeout=60), set[int]()

    def forward(crops: Crops) -> NDArray[np.float32]:
        together.wait()  # raises BrokenBarrierError unless both are here
        threads.add(threading.get_ident())
        return np.zeros((len(crops), 1), np.float32)

    passes = ForwardPasses(2)
    try:
        passes.side_by_side(forward, np.zeros((1, 2, 2, 3), np.uint8), 2)
    finally:
        passes.close()
    assert len(threads) == 2
    assert threading.get_ident() not in threads
