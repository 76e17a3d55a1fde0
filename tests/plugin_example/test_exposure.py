"""The example, where it is installed: `tests/e2e/test_plugins.py` runs this file."""

import numpy as np
import pytest

from tests.emulation.emulator import emulator
from tests.unit.workers.kernels.specified import image
from workers.filters.registry import parse_one
from workers.kernels.compilation import compiled
from workers.kernels.cubins import CubinStore
from workers.kernels.loader import modules

NAME = "darkroom_exposure/exposure.cu"


@pytest.mark.parametrize("stops", [-8, -0.5, 0, 0.3, 1, 8])
def test_exposure_multiplies_by_a_power_of_two(stops: float) -> None:
    filter_, random = parse_one("exposure", {"stops": stops}), np.random.default_rng(1)
    images = [image(random, 70, 65, channels) for channels in (1, 3, 4)]
    expected = [np.minimum(np.floor(each * 2.0**stops + 0.5), 255) for each in images]
    expected[2][..., 3] = images[2][..., 3]
    kernel = emulator(f'#include "{NAME}"\n').run([filter_] * 3, images)
    for pixels, result, right in zip(images, kernel, expected, strict=True):
        assert np.array_equal(filter_.apply(pixels), right)
        assert np.array_equal(result, right)


def test_nvrtc_compiles_the_kernel() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from workers.engines.cuda.nvrtc import Nvrtc

    (module,) = [each for each in modules() if each.name == NAME]
    assert b"exposure" in compiled([module], "sm_90", Nvrtc(), CubinStore(()))[NAME]
