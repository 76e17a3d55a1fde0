"""JPEGs that were cut and closed do not go to a device, which would not notice."""

import numpy as np
import pytest

from models.codec import encoded, open_plain
from models.codec.jpeg import inspect
from models.domain.errors import Undecodable
from tests.pictures import drawing
from tests.pictures import encoded as file_of
from tests.shared import PHOTOS

EOI = b"\xff\xd9"
LIMIT = 10_000_000
SUBSAMPLINGS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}


def files(subsampling: str, *, optimize: bool = False) -> list[bytes]:
    options = {"subsampling": SUBSAMPLINGS[subsampling], "optimize": optimize}
    sizes = [(320, 240), (61, 43), (9, 300), (1, 1), (8, 8), (16, 16)]
    return [
        file_of(drawing(*size, seed=seed), "JPEG", quality=quality, **options)
        for seed, size in enumerate(sizes)
        for quality in (30, 75, 90, 95)
    ]


def closed_cuts(data: bytes, count: int) -> list[bytes]:
    """Return a file cut at places in its scan, each closed by an end marker."""
    start = data.index(b"\xff\xda") + 14
    ends = np.linspace(start + 20, len(data) - 4, count).astype(int)
    return [data[:end].removesuffix(b"\xff") + EOI for end in ends]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
def test_whole_files_go_to_the_device(subsampling: str, optimize: bool) -> None:
    for data in files(subsampling, optimize=optimize):
        assert encoded(data, max_pixels=LIMIT) is not None


def test_whole_grey_files_and_flat_pictures_go_to_the_device() -> None:
    for mode, level in (("L", None), ("L", 0), ("L", 255), ("RGB", 0), ("RGB", 255), ("RGB", 99)):
        picture = drawing(200, 150, mode=mode)
        if level is not None:
            picture = picture.point(lambda _, level=level: level)
        assert encoded(file_of(picture, "JPEG"), max_pixels=LIMIT) is not None


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
def test_cut_files_are_decoded_here_and_refused(subsampling: str, optimize: bool) -> None:
    cuts = [
        cut for data in files(subsampling, optimize=optimize)[:8] for cut in closed_cuts(data, 25)
    ]
    missed = 0
    for cut in cuts:
        missed += encoded(cut, max_pixels=LIMIT) is not None
        if plain := open_plain(cut, max_pixels=LIMIT):
            with pytest.raises(Undecodable, match="truncated"):
                plain.decode_plain()
    assert missed <= len(cuts) * 0.04


def test_photos_go_to_the_device_and_cut_photos_do_not() -> None:
    photos = [path.read_bytes() for path in sorted(PHOTOS.glob("*.JPEG"))[::4]]
    if not photos:
        pytest.skip("the photos are not here")
    plain = [data for data in photos if (found := inspect(data)) and not found.restarts]
    for found in map(inspect, plain):
        assert found is not None
        assert found.ends_with_a_unit()
    cuts = [cut for data in plain for cut in closed_cuts(data, 20)]
    missed = sum(encoded(cut, max_pixels=LIMIT) is not None for cut in cuts)
    assert missed <= len(cuts) * 0.03
