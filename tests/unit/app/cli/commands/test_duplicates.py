"""The groups of `darkroom duplicates`."""

from pathlib import Path

import numpy as np
import pytest

from app.cli.commands.duplicates import alike
from app.cli.parser import run
from models.exit_codes import ExitCode


@pytest.mark.parametrize(
    ("hashes", "distance", "groups"),
    [
        ([], 6, []),
        ([5, 5, 9, 5], 0, [[0, 1, 3]]),
        ([0, 2**64 - 1, 1 << 63], 1, [[0, 2]]),
        ([0b111, 0, 0b11, 0b1], 1, [[0, 1, 2, 3]]),  # the first and the second by the others
        ([0b1111, 0, 0b11], 1, []),
        ([0, 2**64 - 1], 64, [[0, 1]]),
    ],
)
def test_images_are_in_a_group_if_their_hashes_are_near(
    hashes: list[int], distance: int, groups: list[list[int]]
) -> None:
    assert alike(np.array(hashes, np.uint64), distance) == groups


def test_a_distance_of_more_bits_than_a_hash_has_is_refused(tmp_path: Path) -> None:
    assert run(["duplicates", str(tmp_path), "--distance", "65"]) == ExitCode.WRONG_USAGE
