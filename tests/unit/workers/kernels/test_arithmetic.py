"""Arithmetic that kernels use instead of slower operations, for every number that occurs."""

import numpy as np
import pytest


@pytest.mark.parametrize("error", [-(2.0**-22), 0, 2.0**-22])
def test_one_step_of_newton_rounds_the_root_of_every_gradient(error: float) -> None:
    squares = np.arange(2 * 1020**2 + 1, dtype=np.float64)
    single = np.float32
    near = 1 / np.sqrt(np.maximum(squares, 0.5))
    inverse = (near * (1 + error)).astype(single)
    root = (squares * inverse).astype(single)
    rest = (squares - root.astype(np.float64) ** 2).astype(single)
    half = (0.5 * inverse).astype(single)
    root = (rest.astype(np.float64) * half + root).astype(single)
    assert np.array_equal(np.rint(root), np.rint(np.sqrt(squares)))


def test_a_thirteenth_in_sixteen_bits_divides_every_sum_of_smooth() -> None:
    sums = np.arange(255 * 13 + 7)
    assert np.array_equal(sums * 5042 >> 16, sums // 13)


def test_lumas_by_bytes_of_their_weights_are_the_lumas() -> None:
    weights = np.array([19595, 38470, 7471])
    assert np.array_equal([0x4C, 0x96, 0x1D], weights >> 8)
    assert np.array_equal([0x8B, 0x46, 0x2F], weights & 255)
