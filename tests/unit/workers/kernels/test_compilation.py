"""What is compiled at a start: what is missing, in parallel, and once for all processes."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workers.kernels.compilation import compiled
from workers.kernels.cubins import CubinStore
from workers.kernels.loader import CudaModule

MODULES = tuple(CudaModule(f"{n}.cu", f"text {n}", (f"kernel_{n}",)) for n in range(4))
BOTH = {f"{n}.cu": f"text {n} sm_90".encode() for n in range(4)}


class Recorder:
    """Compiles to the text and the architecture, and records what it was given."""

    version = "recorder 1.0"

    def __init__(self) -> None:
        self.names: list[str] = []
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()

    def compile(self, text: str, name: str, options: Sequence[str]) -> bytes:
        self.entered.release()
        self.go.wait(60)
        self.names.append(name)
        return f"{text} {options[-1].removeprefix('-arch=')}".encode()


def test_the_second_start_compiles_nothing(tmp_path: Path) -> None:
    store, compiler = CubinStore([tmp_path]), Recorder()
    assert compiled(MODULES, "sm_90", compiler, store) == BOTH
    assert compiled(MODULES, "sm_90", compiler, store) == BOTH
    assert sorted(compiler.names) == [each.name for each in MODULES]


def test_a_process_that_comes_while_another_compiles_waits_and_loads(tmp_path: Path) -> None:
    first, second = Recorder(), Recorder()
    first.go.clear()
    with ThreadPoolExecutor(2) as starter:  # each store opens a lock of its own, as processes do
        one = starter.submit(compiled, MODULES, "sm_90", first, CubinStore([tmp_path]))
        assert first.entered.acquire(timeout=60)
        two = starter.submit(compiled, MODULES, "sm_90", second, CubinStore([tmp_path]))
        first.go.set()
        assert one.result(60) == two.result(60) == BOTH
    assert second.names == []


def test_an_error_of_the_compiler_ends_the_start_and_the_lock(tmp_path: Path) -> None:
    class Failing(Recorder):
        def compile(self, _text: str, name: str, _options: Sequence[str]) -> bytes:
            raise RuntimeError(f"{name}: no such type")

    store = CubinStore([tmp_path])
    with pytest.raises(RuntimeError, match="no such type"):
        compiled(MODULES, "sm_90", Failing(), store)
    assert compiled(MODULES, "sm_90", Recorder(), store) == BOTH
