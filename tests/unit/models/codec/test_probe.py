"""Headers: what `probe` and guesses read from files, and how files are refused."""

import io
import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from PIL import Image as PillowImage

from models.codec import ImageFormat, claimed_pixels, decode, probe
from models.domain.errors import ServiceError, TooManyPixels, Undecodable, UnsupportedMedia
from tests.pictures import as_image
from tests.shared import SHARED

LIMIT = 50_000_000


def image_file(
    format: ImageFormat, size: tuple[int, int] = (7, 5), mode: str = "RGB", **options: Any
) -> bytes:
    file = BytesIO()
    PillowImage.new(mode, size, 100).save(file, format.name, **options)
    return file.getvalue()


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(width: int, height: int, *chunks: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks)


def exif(orientation: int) -> bytes:
    block = PillowImage.Exif()
    block[0x0112] = orientation
    return block.tobytes()


@pytest.mark.parametrize("format", ImageFormat)
def test_every_format_is_told_by_its_bytes(format: ImageFormat) -> None:
    info = probe(image_file(format), max_pixels=LIMIT)
    assert (info.format, info.width, info.height, info.orientation) == (format, 7, 5, 1)
    assert info.frames == 1


@pytest.mark.parametrize("format", [ImageFormat.JPEG, ImageFormat.PNG, ImageFormat.WEBP])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_width_and_height_are_those_of_the_upright_image(
    format: ImageFormat, orientation: int
) -> None:
    info = probe(image_file(format, exif=exif(orientation)), max_pixels=LIMIT)
    assert info.orientation == orientation
    assert (info.width, info.height) == ((7, 5) if orientation < 5 else (5, 7))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_a_tiff_is_applied_once(orientation: int) -> None:
    data = image_file(ImageFormat.TIFF, tiffinfo={0x0112: orientation})
    info = probe(data, max_pixels=LIMIT)
    assert info.orientation == orientation
    assert (info.width, info.height) == ((7, 5) if orientation < 5 else (5, 7))


@pytest.mark.parametrize("orientation", [0, 9, 6000])
def test_an_orientation_out_of_range_means_upright(orientation: int) -> None:
    info = probe(image_file(ImageFormat.JPEG, exif=exif(orientation)), max_pixels=LIMIT)
    assert (info.orientation, info.width, info.height) == (1, 7, 5)


@pytest.mark.parametrize("broken", [b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0junk"])
def test_broken_exif_does_not_fail_an_image(broken: bytes) -> None:
    assert probe(image_file(ImageFormat.JPEG, exif=broken), max_pixels=LIMIT).orientation == 1


@pytest.mark.parametrize(
    ("format", "frames"),
    [
        (ImageFormat.GIF, 2),
        (ImageFormat.TIFF, 2),
        (ImageFormat.PNG, 3),
        (ImageFormat.WEBP, 3),
        (ImageFormat.AVIF, 3),
    ],
)
def test_more_than_one_frame_is_told(format: ImageFormat, frames: int) -> None:
    file = BytesIO()
    first, *others = (PillowImage.new("RGB", (8, 8), (c, 0, 0)) for c in (0, 120, 240))
    first.save(file, format.name, save_all=True, append_images=others)
    assert probe(file.getvalue(), max_pixels=LIMIT).frames == frames


def test_a_gif_that_breaks_behind_its_first_frame_counts_one() -> None:
    data = image_file(ImageFormat.GIF)[:-1] + b",\0"
    assert probe(data, max_pixels=LIMIT).frames == 1


@pytest.mark.parametrize(("mode", "fast"), [("L", True), ("RGB", True), ("CMYK", False)])
def test_fast_jpegs_are_grey_or_of_three_components(mode: str, fast: bool) -> None:
    info = probe(image_file(ImageFormat.JPEG, mode=mode), max_pixels=LIMIT)
    assert (info.mode, info.fast_jpeg) == (mode, fast)


def test_only_jpegs_are_fast_jpegs() -> None:
    assert not probe(image_file(ImageFormat.PNG), max_pixels=LIMIT).fast_jpeg


def test_nothing_is_unsupported_media_and_says_empty() -> None:
    with pytest.raises(UnsupportedMedia, match="empty"):
        probe(b"", max_pixels=LIMIT)


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"hello, world",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"P6 1 1 255\nabc",
        b"%PDF-1.7",
        b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
        b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic",
        b"\xff\xd8",
        b"RIFF\0\0\0\0WAVEfmt ",
        b"8BPS\0\1",
    ],
)
def test_other_formats_are_unsupported_media_and_ours_are_named(data: bytes) -> None:
    with pytest.raises(UnsupportedMedia, match=r"JPEG, PNG, WEBP, GIF, BMP, TIFF, AVIF"):
        probe(data, max_pixels=LIMIT)


@pytest.mark.parametrize(
    "magic",
    [
        b"\xff\xd8\xff",
        b"\x89PNG\r\n\x1a\n",
        b"RIFF\0\0\0\0WEBPVP8 ",
        b"GIF89a",
        b"BM",
        b"II*\0",
        b"MM\0+",
        b"\0\0\0\x1cftypavif\0\0\0\0avif",
    ],
)
def test_a_format_of_ours_with_a_broken_header_is_undecodable(magic: bytes) -> None:
    for rest in (b"", b"\0", b"\xff" * 100):
        with pytest.raises(Undecodable, match="corrupt"):
            probe(magic + rest, max_pixels=LIMIT)


@pytest.mark.parametrize("format", ImageFormat)
def test_a_header_cut_anywhere_is_a_service_error_or_told_rightly(format: ImageFormat) -> None:
    whole = image_file(format)
    for end in range(1, len(whole)):
        told = told_or_refused(whole[:end])
        assert told in ((7, 5), 415, 422)


def told_or_refused(data: bytes) -> tuple[int, int] | int:
    try:
        info = probe(data, max_pixels=LIMIT)
    except ServiceError as error:
        return error.status
    return info.width, info.height


@pytest.mark.parametrize("format", ImageFormat)
def test_the_pixel_limit_is_inclusive(format: ImageFormat) -> None:
    data = image_file(format)
    assert probe(data, max_pixels=35).width == 7
    with pytest.raises(TooManyPixels, match="7 × 5 pixels, more than the 34 allowed"):
        probe(data, max_pixels=34)


@pytest.mark.parametrize("size", [(2**31 - 1, 2**31 - 1), (100_000, 100_000), (10_000, 9_000)])
def test_a_header_that_lies_about_a_huge_size_is_refused_before_decoding(
    size: tuple[int, int],
) -> None:
    with pytest.raises(TooManyPixels):
        probe(png(*size, chunk(b"IDAT", b"")), max_pixels=LIMIT)


def stating(format: ImageFormat, name: bytes, at: int, form: str) -> bytes:
    """Return a file that states 14000 × 14000 pixels, at a number of bytes after a name."""
    data = bytearray(image_file(format))
    struct.pack_into(form, data, data.index(name) + at, 14_000, 14_000)
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        png(14_000, 14_000, chunk(b"IDAT", b"")),
        stating(ImageFormat.GIF, b"GIF8", 6, "<HH"),
        stating(ImageFormat.BMP, b"BM", 18, "<ii"),
        stating(ImageFormat.AVIF, b"ispe", 8, ">II"),
    ],
    ids=["png", "gif", "bmp", "avif"],
)
def test_a_file_above_pillows_ceiling_is_refused_with_its_size_and_the_limit(data: bytes) -> None:
    with pytest.raises(TooManyPixels, match="14000 × 14000 pixels, more than the 50,000,000 allow"):
        probe(data, max_pixels=LIMIT)


def test_pillows_own_ceiling_holds_whatever_the_limit_and_is_a_clean_error() -> None:
    with pytest.raises(TooManyPixels):
        probe(png(20_000, 20_000, chunk(b"IDAT", b"")), max_pixels=10**12)


def test_between_pillows_warning_and_its_ceiling_our_limit_alone_decides() -> None:
    data = png(12_000, 10_000, chunk(b"IDAT", b""))
    assert probe(data, max_pixels=120_000_000).width == 12_000


def test_a_gif_frame_larger_than_its_screen_counts_with_its_own_size() -> None:
    screen = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0, 0, 0)
    frame = b"," + struct.pack("<HHHHB", 0, 0, 60_000, 2_000, 0) + b"\x08\x00;"
    with pytest.raises(TooManyPixels, match="60000 × 2000"):
        probe(screen + frame, max_pixels=LIMIT)


@pytest.mark.parametrize("name", [b"zTXt", b"iCCP"])
def test_a_compressed_chunk_that_unpacks_to_megabytes_is_undecodable(name: bytes) -> None:
    bomb = chunk(name, b"k\0\0" + zlib.compress(bytes(4 << 20)))
    with pytest.raises(Undecodable):
        probe(png(1, 1, bomb, chunk(b"IDAT", b"")), max_pixels=LIMIT)


@pytest.mark.parametrize("size", [(1, 1), (65_500, 1), (1, 65_500)])
def test_the_thinnest_images_are_images(size: tuple[int, int]) -> None:
    info = probe(image_file(ImageFormat.JPEG, size), max_pixels=LIMIT)
    assert (info.width, info.height) == size


def test_an_error_shows_nothing_of_the_inside() -> None:
    with pytest.raises(Undecodable) as caught:
        probe(b"\x89PNG\r\n\x1a\n", max_pixels=LIMIT)
    assert "object" not in caught.value.detail
    assert "PIL" not in caught.value.detail


FORMATS = ["jpeg", "png", "gif", "bmp", "webp"]


def file(format_: str, width: int = 37, height: int = 23, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(buffer, format_, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("format_", FORMATS)
def test_each_format_shows_its_pixels(format_: str) -> None:
    assert claimed_pixels(file(format_)) == 37 * 23


def test_a_lossless_webp_and_a_progressive_jpeg_show_their_pixels() -> None:
    assert claimed_pixels(file("webp", lossless=True)) == 37 * 23
    assert claimed_pixels(file("jpeg", progressive=True)) == 37 * 23


def test_a_tiff_shows_nothing() -> None:
    assert claimed_pixels(file("tiff")) is None


def test_a_jpeg_with_too_many_segments_shows_nothing() -> None:
    data = file("jpeg")
    assert claimed_pixels(data[:2] + b"\xff\xfe\x00\x02" * 70 + data[2:]) is None


@pytest.mark.parametrize("format_", FORMATS)
@given(st.data())
def test_a_file_that_is_cut_or_changed_anywhere_gives_a_guess_or_nothing(
    format_: str, data: st.DataObject
) -> None:
    whole = bytearray(file(format_, 5, 4))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    found = claimed_pixels(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    assert found is None or found >= 0


CASES = SHARED / "cases"
CASES_LIMIT = 1_000_000
BLACK_TO_WHITE: list[tuple[int, ...]] = [(0, 0, 0), (64, 64, 64), (128, 128, 128), (255, 255, 255)]
COLUMNS: dict[str, list[tuple[int, ...]]] = {
    "png_cicp_display_p3.png": [(215, 93, 31), (0, 163, 82), (85, 111, 206), (128, 128, 128)],
    "tiff_16_white_is_zero_le.tif": [(255,) * 3, (191,) * 3, (127,) * 3, (0,) * 3],
    "tiff_grey_alpha_white_is_zero.tif": [(155, 155, 155, 128)],
    "tiff_12_bit_le.tif": BLACK_TO_WHITE,
    "tiff_palette_8_bit_colormap.tif": [(255, 0, 0), (0, 255, 0)],
    "tiff_uint32_le.tif": [(0,) * 3, (255,) * 3, (255,) * 3, (255,) * 3],
    "bmp_v5_alpha_all_zero.bmp": [(200, 100, 50, 255), (30, 20, 10, 255)],
    "png_text_crc_wrong.png": [(200, 100, 50)],
    "avif_clap_top_left_32x32.avif": [(255, 0, 0)],
}
SIZES = {
    "avif_xmp_orientation_only.avif": (64, 32),
    "jpeg_xmp_orientation_only.jpg": (64, 32),
    "avif_clap_top_left_32x32.avif": (32, 32),
    "jpeg_no_eoi_phone_trailer.jpg": (64, 64),
}


def read(name: str) -> NDArray[np.int_]:
    """Return pixels in three or four channels, as signed numbers."""
    path = CASES / name
    if not path.is_file():
        pytest.skip("the files of ../shared/data/cases are not here")
    pixels = as_image(decode(path.read_bytes(), max_pixels=CASES_LIMIT).image).pixels.astype(int)
    return pixels.repeat(3, axis=2) if pixels.shape[2] == 1 else pixels


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_have_the_right_colours(name: str) -> None:
    pixels, right = read(name), COLUMNS[name]
    tolerance = 4 if name.endswith("avif") else 2
    for found, wanted in zip(np.array_split(pixels, len(right), axis=1), right, strict=True):
        assert np.abs(found - wanted).max() <= tolerance


@pytest.mark.parametrize("name", SIZES)
def test_images_have_the_right_size(name: str) -> None:
    assert read(name).shape[1::-1] == SIZES[name]


def test_an_avif_has_the_right_colours() -> None:
    pixels = read("avif_nclx_bt2020_srgb_curve.avif")[16::32, 16::32].reshape(4, 3)
    right = [(241, 76, 29), (0, 168, 79), (53, 111, 208), (128, 128, 128)]
    assert np.abs(pixels - right).max() <= 4


def test_the_rest_of_a_gif_is_transparent() -> None:
    pixels = read("gif_first_frame_partial.gif")
    assert pixels[1, 1].tolist() == [0, 255, 0, 255]
    assert (pixels[[0, -1], :, 3] == 0).all()


def test_the_alpha_of_a_png_of_16_bits() -> None:
    assert read("png_rgb16_trns_low_byte.png")[0, :, 3].tolist() == [0, 255, 255]


def test_a_jpeg_without_its_end_has_the_pixels_of_the_whole() -> None:
    pixels = read("jpeg_no_eoi_phone_trailer.jpg")
    closed = (CASES / "jpeg_no_eoi_phone_trailer.jpg").read_bytes()
    assert not closed.endswith(b"\xff\xd9")
    assert pixels.std() > 10


def test_a_cut_jpeg_is_refused() -> None:
    with pytest.raises(Undecodable):
        read("jpeg_half_then_eoi.jpg")


def test_a_copyright_in_iptc_is_kept() -> None:
    read("copyright_iptc.jpg")
    found = decode((CASES / "copyright_iptc.jpg").read_bytes(), max_pixels=CASES_LIMIT)
    assert found.copyright == "(c) 2024 Example Agency"
