"""What starts a kernel: the compiled module on a GPU, an emulation in tests."""

from collections.abc import Sequence
from typing import Any, Protocol


class Launcher(Protocol):
    """Starts kernels of `workers.kernels` by name."""

    def launch(self, name: str, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        """Start one, on the stream that is current; addresses are ints, other integers np.int32."""
