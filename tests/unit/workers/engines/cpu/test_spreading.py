"""When one image is spread over all cores."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from workers.engines.cpu.engine import CROWDED, CpuEngine

ONE = np.zeros((1, 2, 2, 3), np.uint8)


class Passes:
    """Notes where forward passes are computed."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_all_cores(self, _forward: object, _crops: object) -> None:
        self.seen.append("all cores")

    def on_this_core(self, _forward: object, _crops: object) -> None:
        self.seen.append("this core")


def test_an_image_is_spread_unless_another_batch_is_or_just_was_beside_it() -> None:
    engine, passes = CpuEngine((), 8, 2), Passes()
    engine._passes = cast(Any, passes)
    network = cast(Any, SimpleNamespace(logits=None))

    def compute() -> None:
        with engine._counted():
            engine._logits(network, ONE)

    compute()
    with engine._counted():
        beside = threading.Thread(target=compute)
        beside.start()
        beside.join()
    compute()
    engine._crowded_at -= CROWDED
    compute()
    assert passes.seen == ["all cores", "this core", "this core", "all cores"]
