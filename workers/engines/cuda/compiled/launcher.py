"""The seam for starting kernels: the compiled module on a GPU, an emulation in tests."""

from collections.abc import Sequence
from typing import Any, Protocol


class Launcher(Protocol):
    """Starts kernels of `workers.kernels` by name."""

    def launch(self, name: str, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        """Start a kernel on the current stream; addresses are ints, other integers np.int32."""
