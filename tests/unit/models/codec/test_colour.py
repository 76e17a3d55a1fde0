"""Colour profiles become sRGB; what is not a usable profile changes nothing."""

import struct
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage
from PIL import ImageCms
from PIL.PngImagePlugin import PngInfo

from models.codec import decode
from models.codec.colour import to_srgb
from models.codec.matrix_shaper import SHAPER, matrix_shaper, shaped
from models.domain.image import Pixels
from tests.pictures import as_image, encoded

LIMIT = 1_000_000
WHITE = (0.9642, 1.0, 0.8249)
WIDE_PRIMARIES = {  # of Adobe RGB (1998), adapted to D50
    b"rXYZ": (0.6097, 0.3111, 0.0195),
    b"gXYZ": (0.2053, 0.6257, 0.0609),
    b"bXYZ": (0.1492, 0.0632, 0.7446),
}


def fixed(*values: float) -> bytes:
    return struct.pack(f">{len(values)}i", *(round(v * 65536) for v in values))


def curve(gamma: float) -> bytes:
    return b"curv" + bytes(4) + struct.pack(">IHxx", 1, round(gamma * 256))


def profile(
    space: bytes, tags: Mapping[bytes, bytes], connection: bytes = b"XYZ ", kind: bytes = b"mntr"
) -> bytes:
    tags = {**tags, b"wtpt": b"XYZ " + bytes(4) + fixed(*WHITE), b"cprt": b"text\0\0\0\0none"}
    offset = 128 + 4 + 12 * len(tags)
    directory, body = struct.pack(">I", len(tags)), b""
    for name, data in tags.items():
        directory += name + struct.pack(">II", offset + len(body), len(data))
        body += data + bytes(-len(data) % 4)
    header = bytearray(128)
    struct.pack_into(">I", header, 0, offset + len(body))
    struct.pack_into(">I4s4s4s", header, 8, 0x02400000, kind, space, connection)
    header[36:40] = b"acsp"
    header[68:80] = fixed(*WHITE)
    return bytes(header) + directory + body


GAMMA = curve(2.2)


def function(kind: int, *numbers: float) -> bytes:
    return b"para" + bytes(4) + struct.pack(">HH", kind, 0) + fixed(*numbers)


def table(*words: int) -> bytes:
    return b"curv" + bytes(4) + struct.pack(f">I{len(words)}H", len(words), *words)


def wide_rgb(tone: bytes = GAMMA) -> bytes:
    primaries = {n: b"XYZ " + bytes(4) + fixed(*xyz) for n, xyz in WIDE_PRIMARIES.items()}
    return profile(b"RGB ", {**primaries, **dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), tone)})


def linear_grey() -> bytes:
    return profile(b"GRAY", {b"kTRC": curve(1.0)})


def colourless_inks() -> bytes:
    """Return a CMYK profile without any colour: its lightness is 100 less 25 for each full ink."""
    identity = bytes(range(256))
    inks = [bin(corner).count("1") for corner in range(16)]
    table = b"".join(bytes((255 - n * 255 // 4, 128, 128)) for n in inks)
    matrix = fixed(1, 0, 0, 0, 1, 0, 0, 0, 1)
    lut = b"mft1" + bytes(4) + bytes((4, 3, 2, 0)) + matrix + identity * 4 + table + identity * 3
    return profile(b"CMYK", {b"A2B0": lut}, b"Lab ", b"prtr")


def image_file(image: PillowImage.Image, format: str = "TIFF", **options: Any) -> bytes:
    return encoded(image, format, **options)


def decoded(data: bytes) -> Pixels:
    return as_image(decode(data, max_pixels=LIMIT).image).pixels


@pytest.fixture
def picture() -> PillowImage.Image:
    rng = np.random.default_rng(5)
    return PillowImage.fromarray(rng.integers(0, 256, (4, 6, 3), np.uint8)).resize((48, 32))


def test_a_wide_profile_is_converted_to_srgb(picture: PillowImage.Image) -> None:
    for format in ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"]:
        with_profile = image_file(picture, format, icc_profile=wide_rgb())
        stored = PillowImage.open(BytesIO(with_profile)).convert("RGB")
        transform = ImageCms.buildTransform(
            ImageCms.ImageCmsProfile(BytesIO(wide_rgb())),
            ImageCms.createProfile("sRGB"),
            "RGB",
            "RGB",
            ImageCms.Intent.RELATIVE_COLORIMETRIC,
            ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
        pixels = decoded(with_profile)
        np.testing.assert_array_equal(pixels, np.asarray(transform.apply(stored)))
        assert np.abs(pixels.astype(int) - np.asarray(stored)).max() > 20


OF_SRGB = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "tone",
    [GAMMA, table(), table(0, 9000, 21000, 65535), function(0, 2.6), function(3, *OF_SRGB)],
    ids=["gamma", "linear", "table", "power", "sRGB"],
)
def test_a_shaper_gives_the_bytes_of_littlecms(tone: bytes, step: int) -> None:
    profile = wide_rgb(tone)
    shaper = np.frombuffer(matrix_shaper(profile) or b"", SHAPER)[0]
    for red in range(0, 256, step):
        plane = np.stack(np.broadcast_arrays(red, *np.ogrid[:256, :256]), -1).astype(np.uint8)
        expected = np.asarray(to_srgb(PillowImage.fromarray(plane), profile, grey=False))
        assert np.array_equal(shaped(plane, shaper), expected)


def test_a_profile_that_littlecms_converts_by_another_way_has_no_shaper() -> None:
    black_is_grey, rare, cut = table(9000, 65535), function(1, 2.2, 1, 0), GAMMA[:9]
    for tone in (black_is_grey, rare, cut, function(3, 9, 90, 9, 9, 0)):
        assert matrix_shaper(wide_rgb(tone)) is None


def test_an_srgb_profile_leaves_every_pixel_alone(picture: PillowImage.Image) -> None:
    for format in ["JPEG", "PNG"]:
        srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        plain = image_file(picture, format)
        tagged = image_file(picture, format, icc_profile=srgb)
        np.testing.assert_array_equal(decoded(tagged), decoded(plain))


def test_alpha_is_kept_while_colours_palettes_and_grey_are_converted() -> None:
    palette = PillowImage.new("P", (2, 2), 1)
    palette.putpalette([0, 0, 0, 200, 50, 50])
    clear = PillowImage.new("RGBA", (2, 2), (200, 50, 50, 77))
    for image, format, profile, right in (
        (clear, "TIFF", wide_rgb(), [232, 46, 46, 77]),
        (palette, "PNG", wide_rgb(), [232, 46, 46]),
        (PillowImage.new("LA", (2, 2), (55, 9)), "PNG", linear_grey(), [128, 128, 128, 9]),
    ):
        assert decoded(image_file(image, format, icc_profile=profile))[0, 0].tolist() == right


def test_grey_with_a_grey_profile_stays_grey_and_follows_its_curve() -> None:
    for format in ["JPEG", "PNG", "TIFF"]:
        pixels = decoded(
            image_file(PillowImage.new("L", (8, 8), 55), format, icc_profile=linear_grey())
        )
        assert pixels.shape == (8, 8, 1)
        assert (pixels == 128).all()  # sRGB's curve: 55 / 255 of the light is level 128


def test_cmyk_goes_through_its_own_profile() -> None:
    for format in ["JPEG", "TIFF"]:
        cyan = PillowImage.new("CMYK", (8, 8), (255, 0, 0, 0))
        pixels = decoded(image_file(cyan, format, icc_profile=colourless_inks()))
        assert pixels.shape == (8, 8, 3)
        assert int(np.ptp(pixels)) <= 1  # neutral, where Pillow's formula gives (0, 255, 255)
        assert 180 <= int(pixels[0, 0, 0]) <= 190  # L* = 75


def test_what_is_no_profile_of_these_colours_is_ignored(picture: PillowImage.Image) -> None:
    whole = wide_rgb()
    for wrong in [
        b"not a profile",
        whole[:100],
        whole[:200],
        whole[:128] + b"\xff" * (len(whole) - 128),
        whole.replace(b"curv", b"????"),
        whole + bytes(5 << 20),
        linear_grey(),
        colourless_inks(),
    ]:
        for format in ("JPEG", "TIFF"):
            plain = decoded(image_file(picture, format))
            assert np.array_equal(decoded(image_file(picture, format, icc_profile=wrong)), plain)


def test_a_text_chunk_named_like_a_profile_is_no_profile(picture: PillowImage.Image) -> None:
    text = PngInfo()
    text.add_text("icc_profile", "surprise")
    data = image_file(picture, "PNG", pnginfo=text)
    np.testing.assert_array_equal(decoded(data), np.asarray(picture))
