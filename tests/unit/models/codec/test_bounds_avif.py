"""The memory of an AVIF: its planes have the depth and the chroma that its configuration states."""

from io import BytesIO

import pytest
from PIL import Image

from models.codec import ImageFormat, open_file
from models.codec.probe import buffers

PIXELS = 64 * 48


def written(mode: str = "RGB", chroma: str = "4:2:0") -> bytes:
    file = BytesIO()
    Image.new(mode, (64, 48), 77).save(file, "AVIF", subsampling=chroma, speed=10)
    return file.getvalue()


def planes(data: bytes, *, alpha: bool = False) -> int:
    return buffers(data, ImageFormat.AVIF, PIXELS, alpha=alpha)


def configured(bits: int) -> bytes:
    """Return a file whose configuration has these bits in the byte of depth and chroma."""
    data = written()
    at = data.index(b"av1C") + 6
    return data[:at] + bytes([bits]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("mode", "chroma", "samples"),
    [("L", "4:0:0", 1.0), ("RGB", "4:2:0", 1.5), ("RGB", "4:2:2", 2), ("RGB", "4:4:4", 3)],
)
def test_what_encoders_write_is_read(mode: str, chroma: str, samples: float) -> None:
    assert planes(written(mode, chroma)) == PIXELS * samples


@pytest.mark.parametrize(
    ("bits", "n_bytes"),
    [(0b0000_1100, 1.5), (0b0100_1100, 3), (0b0110_1000, 4), (0b0110_0000, 6), (0b0101_1100, 2)],
)
def test_samples_of_10_and_12_bits_take_two_bytes(bits: int, n_bytes: float) -> None:
    assert planes(configured(bits)) == PIXELS * n_bytes
    opaque, sample = planes(configured(bits)), 2 if bits & 0x40 else 1
    assert planes(configured(bits), alpha=True) == opaque + PIXELS * sample


def test_a_file_without_a_configuration_is_assumed_to_take_the_most() -> None:
    data = written().replace(b"av1C", b"free")
    assert planes(data) == PIXELS * 6
    assert planes(data, alpha=True) == PIXELS * 8


def test_the_largest_of_several_configurations_counts() -> None:
    fine = (16).to_bytes(4, "big") + b"av1C\x81\0\x40\0" + bytes(4)
    assert planes(written() + fine) == PIXELS * 6


def test_the_configuration_of_a_track_counts() -> None:
    fine = (12).to_bytes(4, "big") + b"av1C\x81\0\x40\0"
    for name, before in ((b"av01", 78), (b"stsd", 8), (b"stbl", 0), (b"moov", 0)):
        fine = (8 + before + len(fine)).to_bytes(4, "big") + name + bytes(before) + fine
    assert planes(written() + fine) == PIXELS * 6


def test_planes_and_alpha_are_part_of_the_estimate() -> None:
    sizes = {}
    for mode in ("RGB", "RGBA"):
        picture = Image.effect_noise((64, 48), 90).convert(mode)
        picture.putpixel((0, 0), (1, 2, 3) if mode == "RGB" else (1, 2, 3, 4))
        file = BytesIO()
        picture.save(file, "AVIF", subsampling="4:4:4", speed=10)
        opened = open_file(file.getvalue(), max_pixels=PIXELS)
        sizes[mode] = opened.memory - len(file.getvalue())
    assert sizes == {"RGB": PIXELS * (2 * 3 + 1 + 3), "RGBA": PIXELS * (2 * 4 + 1 + 3 + 1)}
