"""What is kept of EXIF when `metadata` is to be kept, and that nothing broken gets through."""

import struct
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PillowImage

from models.codec import Encoding, ImageFormat, decode, encode, encoded
from models.codec.metadata import MAX_BLOCK, PREFIX, kept
from models.domain.image import Image

LIMIT = 50_000_000
KEEP = Encoding(metadata="keep")
PHOTO, GPS = 0x8769, 0x8825


def block(endian: str = ">") -> bytes:
    """Return the EXIF of a camera: orientation 6, a thumbnail's directory and maker's notes."""
    exif = PillowImage.Exif()
    exif.endian = endian
    exif[0x010F], exif[0x0110], exif[0x0132] = "Maker", "Model X", "2026:11:21 12:00:00"
    exif[0x0112] = 6
    exif[0x0100], exif[0x0101] = 4000, 3000
    exif[0x8298] = "© Zoë".encode()
    exif[PHOTO] = {
        0x829A: 0.004,
        0x9003: "2026:11:20 11:59:00",
        0x927C: b"\0\1\2 notes",
        0xA001: 65535,
        0xA002: 4000,
        0xA003: 3000,
    }
    exif[GPS] = {1: "N", 2: (48.0, 8.0, 0.5)}
    return exif.tobytes()


def jpeg(exif: bytes) -> bytes:
    file = BytesIO()
    picture = np.random.default_rng(0).integers(0, 256, (20, 32, 3), np.uint8)
    PillowImage.fromarray(picture).save(file, "JPEG", exif=exif)
    return file.getvalue()


def again(data: bytes, format: ImageFormat, asked: Encoding) -> bytes:
    """Return the file decoded and encoded, as the service does it."""
    source = decode(data, max_pixels=LIMIT)
    assert isinstance(source.image, Image)
    return encode(source.image, format, asked, copyright=source.copyright, exif=source.exif)


def read(data: bytes) -> PillowImage.Exif:
    return PillowImage.open(BytesIO(data)).getexif()


@pytest.mark.parametrize("endian", ["<", ">"])
@pytest.mark.parametrize("format", ["jpeg", "png", "webp", "avif"])
def test_what_still_holds_is_kept_and_the_picture_is_upright(format: str, endian: str) -> None:
    data = again(jpeg(block(endian)), ImageFormat(format), KEEP)
    exif = read(data)
    assert (exif[0x010F], exif[0x0110], exif[0x0132]) == (
        "Maker",
        "Model X",
        "2026:11:21 12:00:00",
    )
    assert 0x0112 not in exif
    assert 0x0100 not in exif
    photo, gps = exif.get_ifd(PHOTO), exif.get_ifd(GPS)
    assert (float(photo[0x829A]), photo[0x9003]) == (0.004, "2026:11:20 11:59:00")
    assert 0x927C not in photo
    assert (photo[0xA001], photo[0xA002], photo[0xA003]) == (1, 20, 32)
    assert gps[1] == "N"
    assert [float(each) for each in gps[2]] == [48.0, 8.0, 0.5]
    assert not exif.get_ifd(1)
    result = decode(data, max_pixels=LIMIT)
    assert (result.copyright, result.info.orientation) == ("© Zoë", 1)
    assert (result.info.width, result.info.height) == (20, 32)


@pytest.mark.parametrize("format", ["jpeg", "png", "webp", "avif"])
def test_stripped_leaves_the_copyright_alone(format: str) -> None:
    exif = read(again(jpeg(block()), ImageFormat(format), Encoding()))
    assert dict(exif) == {0x8298: "© Zoë".encode().decode("latin-1")}


def test_a_jpeg_left_to_the_device_to_decode_keeps_its_exif() -> None:
    data = jpeg(block())
    found = encoded(data, max_pixels=LIMIT)
    assert found is not None
    assert found.exif == decode(data, max_pixels=LIMIT).exif


def test_a_png_whose_exif_stands_behind_the_pixels_keeps_it() -> None:
    file = BytesIO()
    PillowImage.new("RGB", (5, 4)).save(file, "PNG", exif=block())
    data = file.getvalue()
    at = data.index(b"eXIf") - 4
    size = 12 + int.from_bytes(data[at : at + 4], "big")
    moved = data[:at] + data[at + size : -12] + data[at : at + size] + data[-12:]
    assert read(again(moved, ImageFormat.JPEG, KEEP))[0x0110] == "Model X"


def test_formats_without_such_a_block_keep_the_copyright() -> None:
    file = BytesIO()
    PillowImage.new("RGB", (5, 4)).save(file, "TIFF", tiffinfo={0x8298: "me", 0x0110: "X"})
    assert dict(read(again(file.getvalue(), ImageFormat.JPEG, KEEP))) == {0x8298: "me"}


def test_no_profile_is_written_for_the_pixels_are_srgb() -> None:
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    file = BytesIO()
    PillowImage.new("RGB", (5, 4)).save(file, "JPEG", icc_profile=profile, exif=block())
    for format in (ImageFormat.JPEG, ImageFormat.PNG, ImageFormat.WEBP, ImageFormat.AVIF):
        made = PillowImage.open(BytesIO(again(file.getvalue(), format, KEEP)))
        assert "icc_profile" not in made.info


def test_broken_blocks_are_left_out_and_the_copyright_stays() -> None:
    image = Image(np.zeros((3, 3, 3), np.uint8))
    for wrong in (b"", b"Exif\0\0", b"nonsense", PREFIX + b"II*\0", b"x" * (MAX_BLOCK + 1)):
        data = encode(image, ImageFormat.JPEG, KEEP, copyright="me", exif=wrong)
        assert dict(read(data)) == {0x8298: "me"}


def test_an_entry_that_points_outside_the_block_is_left_out() -> None:
    entries = struct.pack("<HHII", 0x010F, 2, 100, 1 << 20) + struct.pack(
        "<HHI4s", 0x0110, 2, 2, b"X"
    )
    tiff = b"II*\0" + struct.pack("<IH", 8, 2) + entries + bytes(4)
    made = kept(tiff, 7, 5)
    assert made is not None
    exif = PillowImage.Exif()
    exif.load(made)
    assert dict(exif) == {0x0110: "X"}


def test_entries_that_share_their_values_do_not_make_the_block_grow() -> None:
    shared = 60_000
    n = 400
    entries = b"".join(struct.pack("<HHII", 0x9000 + i, 7, shared, 8) for i in range(n))
    pointer = struct.pack("<HHII", PHOTO, 4, 1, 26)
    tiff = b"II*\0" + struct.pack("<IH", 8, 1) + pointer + bytes(4)
    tiff += struct.pack("<H", n) + entries + bytes(4)
    tiff = tiff.ljust(shared + 8, b"\0")
    made = kept(tiff, 1, 1)
    assert made is not None
    assert len(made) <= MAX_BLOCK


@given(st.data())
def test_no_damage_to_a_block_makes_it_fail_or_gives_a_block_pillow_cannot_read(
    data: st.DataObject,
) -> None:
    damaged = bytearray(block(data.draw(st.sampled_from("<>"))))
    for _ in range(data.draw(st.integers(0, 6))):
        damaged[data.draw(st.integers(6, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for given_ in (bytes(damaged), cut):
        made = kept(given_, 10, 20)
        if made is not None:
            exif = PillowImage.Exif()
            exif.load(made)
            assert 0x0112 not in exif
            assert len(made) <= MAX_BLOCK


def test_an_entry_that_claims_more_than_there_is_costs_the_others_nothing() -> None:
    def entry(tag: int, kind: int, number: int, value: bytes) -> bytes:
        return struct.pack("<HHI4s", tag, kind, number, value)

    entries = [entry(0x010E, 2, 0x7FFFFFFF, b"\0\0\0\0"), entry(0x010F, 2, 4, b"Own\0")]
    directory = struct.pack("<H", len(entries)) + b"".join(entries) + bytes(4)
    made = kept(PREFIX + b"II*\0" + struct.pack("<I", 8) + directory, 8, 8)
    assert made is not None
    assert b"Own\0" in made


def test_a_block_of_which_nothing_is_kept_is_none() -> None:
    assert kept(PREFIX + b"II*\0" + struct.pack("<I", 8) + bytes(6), 8, 8) is None
