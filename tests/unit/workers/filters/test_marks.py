"""Redaction against the filters of a crop, overlays against Pillow, and what may not leak."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from models.codec.metadata import kept
from models.domain.errors import InvalidParameter, TooManyPixels
from models.domain.image import Pixels
from tests.unit.models.codec.test_metadata import block
from tests.unit.workers.filters.images import image, images, pillow, run
from workers.filters.marks import MOST_PICTURE, picture_of

SHARES = [[0.25, 0.1, 0.5, 0.6], [0.4, 0.5, 0.9, 0.9]]


@pytest.mark.parametrize("method", ["pixelate", "blur", "fill"])
@given(pixels=images())
def test_each_region_is_the_filtered_crop_pasted_back(method: str, pixels: Pixels) -> None:
    height, width, channels = pixels.shape
    expected = pixels.copy()
    for x, y, w, h in SHARES:
        box = (
            slice(int(y * height), min(height, int(np.ceil((y + h) * height)))),
            slice(int(x * width), min(width, int(np.ceil((x + w) * width)))),
        )
        crop = np.ascontiguousarray(expected[box])
        if method == "fill":
            made = np.array([255, 0, 128, 255] if channels > 1 else [91], np.uint8)[:channels]
        else:
            name, key = ("pixelate", "size") if method == "pixelate" else ("box_blur", "radius")
            made = run(name, crop, **{key: max(2, -(-max(crop.shape[:2]) // 8))})
        expected[box] = made
    options = {"method": method, "background": "ff0080", "unit": "share"}
    assert np.array_equal(run("redact", pixels, regions=SHARES, **options), expected)


def test_regions_are_lists_or_text_and_their_edges_move_outwards() -> None:
    noise = image(20, 30, 3, 1)
    found = run("redact", noise, regions="1.5,2.9,3.2,4; 28,-5,9,6", method="fill")
    black = (found == 0).all(2)
    assert black[2:7, 1:5].all()
    assert black[:1, 28:].all()
    black[2:7, 1:5] = black[:1, 28:] = False
    assert np.array_equal(black, (noise == 0).all(2))
    assert not run("redact", noise, method="fill").any()  # without regions all of it


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ({"regions": [[0, 0, 9, 9], [30, 0, 9, 9]]}, r"regions\[1\] lies outside of .* 30 × 20"),
        ({"regions": [[0, 0, 0, 9]]}, "regions: a list of 1 to 32 regions"),
        ({"regions": []}, "regions: a list of 1 to 32 regions"),
        ({"regions": "1,2,3"}, "regions: a list of 1 to 32 regions"),
        ({"strength": 1}, "strength: a whole number from 2 to 500 px"),
    ],
)
def test_a_region_that_would_hide_nothing_is_an_error(
    parameters: dict[str, object], fault: str
) -> None:
    with pytest.raises(InvalidParameter, match=fault):
        run("redact", image(20, 30, 3, 1), **parameters)


def test_no_thumbnail_is_kept_that_would_show_a_redacted_region() -> None:
    exif = bytearray(block()[6:])
    (start,) = struct.unpack_from(">I", exif, 4)
    after = start + 2 + 12 * struct.unpack_from(">H", exif, start)[0]
    struct.pack_into(">I", exif, after, len(exif))  # the directory of the thumbnail
    at = len(exif) + 2 + 24 + 4
    exif += struct.pack(">HHHIIHHIII", 2, 0x0201, 4, 1, at, 0x0202, 4, 1, 5, 0) + b"THUMB"
    assert b"Model X" in (found := kept(b"Exif\0\0" + exif, 8, 8) or b"")
    assert b"THUMB" not in found


POSITIONS = {"north_west": (0, 0), "north": (1, 0), "center": (1, 1), "east": (2, 1)}


@given(
    pixels=images(),
    over=images(),
    position=st.sampled_from([*POSITIONS]),
    moved=st.tuples(st.integers(-9, 9), st.integers(-9, 9)),
    opacity=st.sampled_from([0, 0.3, 1]),
    tile=st.booleans(),
)
def test_an_overlay_is_pillow_s_alpha_composite(
    pixels: Pixels, over: Pixels, position: str, moved: tuple[int, int], opacity: float, tile: bool
) -> None:
    top = pillow(over).convert("RGBA")
    alpha = np.floor(np.asarray(top.getchannel("A")) * opacity + 0.5).astype(np.uint8)
    top.putalpha(Image.fromarray(alpha))
    under = pillow(pixels).convert("RGBA")
    layer = Image.new("RGBA", under.size)
    left, up = (
        (by, (side - own) // 2 + by, side - own - by)[place]
        for side, own, place, by in zip(
            under.size, top.size, POSITIONS[position], moved, strict=True
        )
    )
    (width, height), (across, down) = top.size, under.size
    for x in range(left % width - width, across, width) if tile else [left]:
        for y in range(up % height - height, down, height) if tile else [up]:
            layer.paste(top, (x, y))
    expected = Image.alpha_composite(under, layer)
    options = {"position": position, "x": moved[0], "y": moved[1], "opacity": opacity, "tile": tile}
    found = run("overlay", pixels, picture=picture_of(over), **options)
    mode = "RGBA" if pixels.shape[2] == 4 else "RGB"
    assert np.array_equal(found, np.asarray(expected.convert(mode)))


def test_a_picture_is_small_and_whole() -> None:
    with pytest.raises(TooManyPixels, match="262,144 are allowed"):
        picture_of(np.zeros((1, MOST_PICTURE + 1, 1), np.uint8))
    for wrong in (b"", picture_of(image(2, 2, 3, 1))[:-1], struct.pack("<2i", -1, -1), "AAAA", 3):
        with pytest.raises(InvalidParameter, match="picture"):
            run("overlay", image(2, 2, 3, 1), picture=wrong)
