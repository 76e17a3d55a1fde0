"""What `codec.decode` makes of files: Pillow's pixels, upright, whole, in one of three shapes."""

import io
import itertools
import re
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image as PillowImage
from PIL import ImageOps
from PIL.PngImagePlugin import PngInfo

from models import codec
from models.codec import (
    Decoded,
    ImageFormat,
    decode,
    open_file,
    open_plain,
    pixels_of,
    stripes,
)
from models.domain.errors import ServiceError, Undecodable
from models.domain.image import Image, Pixels
from tests.hostile import chunk
from tests.pictures import as_image, drawing, encoded, exif
from tests.shared import ODD

LIMIT = 50_000_000
ALLOWED = [format.name for format in ImageFormat]
SIZES = [(1, 1), (8, 8), (17, 31), (64, 3)]


def picture(
    mode: str = "RGB", size: tuple[int, int] = (37, 23), seed: int = 0
) -> PillowImage.Image:
    rng = np.random.default_rng(seed)
    small = PillowImage.fromarray(rng.integers(0, 256, (4, 5, 4), np.uint8), "RGBA")
    large = small.resize(size, PillowImage.Resampling.BICUBIC)
    return large if mode == "RGBA" else large.convert("RGB").convert(mode)


def opened(data: bytes) -> PillowImage.Image:
    return PillowImage.open(io.BytesIO(data), formats=ALLOWED)


def decoded(data: bytes) -> Pixels:
    pixels = as_image(decode(data, max_pixels=LIMIT).image).pixels
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable
    return pixels


def as_pixels(image: PillowImage.Image) -> Pixels:
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., np.newaxis]


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *chunks: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = [chunk(b"IHDR", header), *chunks, chunk(b"IDAT", zlib.compress(rows))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        *(("RGB", {"subsampling": n, "progressive": p}) for n in range(3) for p in (False, True)),
        *(("L", {"progressive": progressive}) for progressive in (False, True)),
        ("RGB", {"keep_rgb": True}),
        ("RGB", {"restart_marker_blocks": 1}),
    ],
)
def test_jpegs_have_pillows_very_pixels(
    size: tuple[int, int], mode: str, options: dict[str, Any]
) -> None:
    data = encoded(picture(mode, size), "JPEG", **options)
    np.testing.assert_array_equal(decoded(data), as_pixels(opened(data)))


PLAIN = {
    "PNG": ("L", "RGB", "RGBA"),
    "WEBP": ("RGB", "RGBA"),
    "BMP": ("L", "RGB"),
    "TIFF": ("L", "RGB", "RGBA"),
    "AVIF": ("RGB", "RGBA"),
}
CONVERTED = {
    ("1", "L"): ("PNG", "TIFF", "BMP"),
    ("LA", "RGBA"): ("PNG", "TIFF"),
    ("P", "RGB"): ("PNG", "GIF", "BMP", "TIFF"),
    ("CMYK", "RGB"): ("JPEG", "TIFF"),
    ("YCbCr", "RGB"): ("TIFF",),
    ("LAB", "RGB"): ("TIFF",),
}


@pytest.mark.parametrize(
    ("format", "mode", "becomes"),
    [
        *((format, mode, mode) for format, modes in PLAIN.items() for mode in modes),
        *((format, *modes) for modes, formats in CONVERTED.items() for format in formats),
    ],
)
def test_pixels_are_taken_as_stored_or_as_pillow_converts_them(
    format: str, mode: str, becomes: str
) -> None:
    data = encoded(picture(mode), format)
    assert opened(data).mode == mode
    np.testing.assert_array_equal(decoded(data), as_pixels(opened(data).convert(becomes)))


def test_a_palette_with_a_transparent_entry_becomes_rgba() -> None:
    for format in ["PNG", "GIF"]:
        image = picture("P")
        data = encoded(image, format, transparency=image.getpixel((0, 0)))
        pixels = decoded(data)
        assert pixels[0, 0, 3] == 0
        np.testing.assert_array_equal(pixels, np.asarray(opened(data).convert("RGBA")))


def test_a_palette_with_an_alpha_for_every_entry_becomes_rgba() -> None:
    image = picture("P")
    pixels = decoded(encoded(image, "PNG", transparency=bytes(range(256))))
    np.testing.assert_array_equal(pixels[..., 3], np.asarray(image))
    np.testing.assert_array_equal(pixels[..., :3], np.asarray(image.convert("RGB")))


def test_a_transparent_colour_becomes_alpha() -> None:
    for image, transparency in [
        (PillowImage.new("L", (2, 1), 7), 7),
        (PillowImage.new("RGB", (2, 1), (7, 8, 9)), (7, 8, 9)),
        (PillowImage.new("1", (2, 1), 0), 0),
    ]:
        image.putpixel((1, 0), 200 if image.mode == "L" else 1)
        pixels = decoded(encoded(image, "PNG", transparency=transparency))
        assert pixels[0, :, 3].tolist() == [0, 255]


def test_the_transparent_colour_of_a_two_bit_png_is_found() -> None:
    data = png(4, 1, 2, 0, b"\0\x1b", chunk(b"tRNS", b"\0\3"))
    assert decoded(data)[0].tolist() == [
        [0, 0, 0, 255],
        [85, 85, 85, 255],
        [170, 170, 170, 255],
        [255, 255, 255, 0],
    ]


def test_a_text_chunk_named_transparency_is_no_transparency() -> None:
    text = PngInfo()
    text.add_text("transparency", "yes")
    for mode in ("L", "RGB", "P"):
        assert decoded(encoded(picture(mode), "PNG", pnginfo=text)).shape[2] in (1, 3)


def test_premultiplied_grey_keeps_its_alpha() -> None:
    grey = np.array([[50, 100]], np.uint8)
    tiff = encoded(PillowImage.merge("LA", [PillowImage.fromarray(grey)] * 2), "TIFF")
    data = tiff.replace(
        struct.pack("<HHIHH", 338, 3, 1, 2, 0), struct.pack("<HHIHH", 338, 3, 1, 1, 0)
    )
    assert opened(data).mode == "La"
    assert decoded(data)[0].tolist() == [[255, 255, 255, 50], [255, 255, 255, 100]]


def test_sixteen_bits_are_scaled_and_rounded_not_clipped() -> None:
    for format in ["PNG", "TIFF"]:
        values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
        exact = np.floor(values / 257 + 0.5)
        pixels = decoded(encoded(PillowImage.fromarray(values), format))
        np.testing.assert_array_equal(pixels[..., 0], exact)


def test_thirty_two_bits_are_sixteen_bit_values_clipped() -> None:
    values = np.array([[-5, 0, 257, 65535, 10**6]], np.int32)
    data = encoded(PillowImage.fromarray(values), "TIFF")
    assert opened(data).mode == "I"
    assert decoded(data)[0, :, 0].tolist() == [0, 0, 1, 255, 255]


def test_floats_are_of_one_or_of_255() -> None:
    for values, levels in [
        ([0.0, 0.5, 1.0, -3.0, np.nan, np.inf], [0, 128, 255, 0, 0, 255]),
        ([0.0, 0.5, 100.4, 300.0, np.nan, -np.inf], [0, 1, 100, 255, 0, 0]),
        ([np.nan] * 2, [0, 0]),
        ([3e38, -3e38], [255, 0]),
    ]:
        data = encoded(PillowImage.fromarray(np.array([values], np.float32)), "TIFF")
        assert decoded(data)[0, :, 0].tolist() == levels


def test_every_orientation_is_turned_as_pillow_turns_it() -> None:
    for orientation, format in itertools.product(
        range(1, 9), ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"]
    ):
        data = encoded(picture(), format, exif=exif(x274=orientation))
        turned = ImageOps.exif_transpose(opened(data))
        result = decode(data, max_pixels=LIMIT)
        np.testing.assert_array_equal(as_image(result.image).pixels, np.asarray(turned))
        assert result.info == open_file(data, max_pixels=LIMIT).info
        assert (result.info.width, result.info.height) == turned.size


def test_an_orientation_behind_the_pixels_of_a_png_is_obeyed() -> None:
    plain = encoded(picture(), "PNG")
    data = plain[:-12] + chunk(b"eXIf", exif(x274=6).tobytes()[6:]) + plain[-12:]
    result = decode(data, max_pixels=LIMIT)
    assert (result.info.orientation, result.info.width, result.info.height) == (6, 23, 37)
    np.testing.assert_array_equal(
        as_image(result.image).pixels, np.asarray(ImageOps.exif_transpose(opened(data)))
    )


def test_the_first_frame_is_the_one_decoded() -> None:
    for format in ["GIF", "TIFF", "PNG", "WEBP", "AVIF"]:
        first, second = (PillowImage.new("RGB", (16, 16), (c, c, c)) for c in (10, 200))
        data = encoded(first, format, save_all=True, append_images=[second])
        result = decode(data, max_pixels=LIMIT)
        assert result.info.frames == 2
        assert abs(int(as_image(result.image).pixels[0, 0, 0]) - 10) <= 2


def test_the_copyright_is_read_in_whatever_encoding() -> None:
    for format, (stored, read) in itertools.product(
        ["JPEG", "PNG", "WEBP", "AVIF"],
        [
            (b"Jane Doe", "Jane Doe"),
            ("© Zoë".encode(), "© Zoë"),
            ("© Zoë".encode("latin-1"), "© Zoë"),
            (b"photo\0editor", "photo editor"),
            (b" \0", None),
        ],
    ):
        data = encoded(picture(), format, exif=exif(x33432=stored))
        assert decode(data, max_pixels=LIMIT).copyright == read


def test_a_file_cut_anywhere_gives_what_pillow_gives() -> None:
    for format in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"):
        whole = encoded(picture(), format)
        for end in range(1, len(whole), max(1, len(whole) // 60)):
            assert_agrees_with_pillow(whole[:end])


def test_jpegs_with_random_damage_give_what_pillow_gives() -> None:
    rng = np.random.default_rng(1)
    files = [encoded(picture(), "JPEG", progressive=p, quality=95) for p in (False, True)]
    for turn in range(400):
        data = bytearray(files[turn % 2])
        for place in rng.integers(0, len(data), rng.integers(1, 4)):
            data[place] = rng.integers(0, 256)
        assert_agrees_with_pillow(bytes(data))


def test_what_pillow_warns_of_is_decoded() -> None:
    data = png(1, 1, 8, 0, b"\0\x63", chunk(b"acTL", struct.pack(">II", 0, 0)))
    assert decoded(data)[0, 0].tolist() == [99]


def odd_files() -> list[Path]:
    return sorted(path for path in ODD.glob("*") if path.is_file())


def test_every_odd_file_gives_what_pillow_gives_and_nothing_but_service_errors() -> None:
    if not odd_files():
        pytest.skip(f"no odd files in {ODD}")
    for path in odd_files():
        assert_agrees_with_pillow(path.read_bytes(), path.name)


def assert_agrees_with_pillow(data: bytes, name: str = "") -> None:
    """Check that exactly the files that Pillow decodes within the limit are decoded, to the same
    upright size. JPEGs whose data end before their last pixel are refused, which Pillow fills up,
    and a missing EOI does not matter.
    """
    closed = data + b"\xff\xd9" if data.startswith(b"\xff\xd8") else data
    ours, theirs = by_us(data), by_pillow(closed)
    if isinstance(ours, ServiceError) and "some of its pixels are missing" in ours.detail:
        with pytest.raises(ValueError, match=r"\w"):
            simplejpeg.decode_jpeg(closed)
    elif theirs is None:
        assert isinstance(ours, ServiceError), f"{name}: Pillow cannot decode this"
        assert ours.status in (413, 415, 422), name
    else:
        assert isinstance(ours, Decoded), f"{name}: Pillow can decode this"
        assert (ours.image.width, ours.image.height) == theirs, name


def by_us(data: bytes) -> Decoded | ServiceError:
    try:
        return decode(data, max_pixels=LIMIT)
    except ServiceError as error:
        return error


def by_pillow(data: bytes) -> tuple[int, int] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = opened(data)
            if image.width * image.height > LIMIT:
                return None
            image.load()
        except Exception:  # the comparison: whatever it raises, Pillow does not decode this
            return None
        return ImageOps.exif_transpose(image).size


def test_pixels_are_the_same_and_writable_unless_they_are_only_read() -> None:
    for orientation, format_ in itertools.product([1, 6], ["JPEG", "PNG", "TIFF"]):
        data = encoded(picture(), format_, exif=exif(x274=orientation))
        only_read = open_file(data, max_pixels=1000).decode(writable=False).image
        pixels = pixels_of(open_file(data, max_pixels=1000).decode().image).pixels
        assert np.array_equal(pixels_of(only_read).pixels, pixels)
        pixels[:] = 0


EOI = b"\xff\xd9"
KINDS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "progressive": {"progressive": True},
    "restart rows": {"restart_marker_rows": 1},
    "restart blocks": {"restart_marker_blocks": 3},
}


def jpeg(mode: str, kind: str) -> bytes:
    return encoded(drawing(160, 120, mode=mode), "JPEG", quality=90, **KINDS[kind])


ENDINGS: dict[str, Callable[[bytes], bytes]] = {
    "no EOI": lambda data: data[:-2],
    "bytes in place of EOI": lambda data: data[:-2] + b"\0\0\1\xa1SEFH" * 8,
    "bytes before EOI": lambda data: data[:-2] + b"\0abc" * 5 + EOI,
    "a marker in place of EOI": lambda data: data[:-2] + b"\xff\x10trailer",
    "restart markers in place of EOI": lambda data: data[:-2] + b"a\xff\xd3b\xff\xd0c",
    "a second JPEG in place of EOI": lambda data: data[:-2] + data,
    "a table in place of EOI": lambda data: data[:-2] + b"\xff\xc4\0\x05abc" + EOI,
    "bytes behind EOI": lambda data: data + b"trailer",
}


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("kind", KINDS)
def test_jpegs_with_all_their_pixels_are_read(mode: str, kind: str) -> None:
    data = jpeg(mode, kind)
    expected = decoded(data)
    for name, ending in ENDINGS.items():
        assert np.array_equal(decoded(ending(data)), expected), name
        assert open_file(ending(data), max_pixels=LIMIT).describe(colour=True).colour, name


@pytest.mark.parametrize("closed", [EOI, b"", EOI + b"trailer"], ids=["EOI", "open", "trailer"])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("kind", KINDS)
def test_jpegs_with_missing_pixels_are_refused(mode: str, kind: str, closed: bytes) -> None:
    data = jpeg(mode, kind)
    start = data.index(b"\xff\xda") + 20
    for end in (start, *np.linspace(start, len(data) - 8, 7).astype(int), len(data) - 4):
        cut = data[:end].removesuffix(b"\xff") + closed
        with pytest.raises(Undecodable, match="truncated"):
            decoded(cut)
        with pytest.raises(Undecodable, match="truncated"):
            open_file(cut, max_pixels=LIMIT).describe(colour=True)
        if plain := open_plain(cut, max_pixels=LIMIT):
            with pytest.raises(Undecodable, match="truncated"):
                plain.decode_plain()


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize(
    ("kind", "cut", "zeros"),
    [
        ("baseline", rb"(\xff\xda.{1000}).*()", 300),
        ("baseline", rb"(\xff\xda.{1000}).*()", 30_000),
        ("restart rows", rb"(\xff\xda.{1000}).*()", 30_000),
        ("baseline", rb"(\xff\xda.*?\0\x3f)\0.*()", 0),
        ("baseline", rb"(\xff\xda.*?\0)\x3f\0.*()", 0),
        ("restart rows", rb"(\xff\xd0.*?)\xff\xd1.*?(\xff\xd2.*)", 0),
        ("restart rows", rb"(\xff\xd0.*?)\xff\xd1.*?(\xff\xd3.*)", 0),
        ("restart blocks", rb"(\xff\xd0.*?)\xff\xd1.*?(\xff\xd7.*)", 0),
    ],
)
def test_jpegs_with_missing_pixels_behind_another_warning_are_refused(
    mode: str, kind: str, cut: bytes, zeros: int
) -> None:
    data = jpeg(mode, kind)
    found = re.search(cut, data[:-2], re.DOTALL)
    assert found
    with pytest.raises(Undecodable, match="truncated"):
        decoded(data[: found.end(1)] + bytes(zeros) + found[2] + EOI)


def test_a_progressive_jpeg_without_its_last_scans_is_refused() -> None:
    data = jpeg("RGB", "progressive")
    scans = [at for at in range(len(data)) if data.startswith(b"\xff\xda", at)]
    assert len(scans) > 3
    for at in scans[1:]:
        end = data.rfind(b"\xff\xc4", scans[0], at)
        with pytest.raises(Undecodable, match="truncated"):
            decoded(data[:end] + EOI)


WIDTH, HEIGHT = 37, 23


def written(format_: str, mode: str, **options: object) -> bytes:
    picture = drawing(WIDTH, HEIGHT)
    if mode == "F":
        picture = PillowImage.fromarray(np.asarray(picture.convert("L"), np.float32) / 300)
    elif mode == "I;16":
        picture = PillowImage.fromarray(np.asarray(picture.convert("L"), np.uint16) * 257)
    elif mode in ("RGBA", "LA"):
        picture = picture.convert(mode)
        picture.putalpha(drawing(WIDTH, HEIGHT).convert("L"))
    else:
        picture = picture.convert(mode)
    return encoded(picture, format_, **options)


def oriented(orientation: int, format_: str) -> bytes:
    return written(format_, "RGB", exif=exif(x274=orientation))


def stripes_decoded(data: bytes, into: stripes.NewPixels | None = None) -> Pixels:
    opened = codec.open_file(data, max_pixels=10_000)
    image = (opened.decode(new_pixels=into) if into else opened.decode()).image
    assert isinstance(image, Image)
    return image.pixels


FILES = {
    **{
        f"png {mode}": written("PNG", mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
    },
    "png transparent colour": written("PNG", "RGB", transparency=(255, 255, 255)),
    "png palette with alpha": written("PNG", "P", transparency=bytes(range(256))),
    **{f"tiff {mode}": written("TIFF", mode) for mode in ("F", "CMYK", "RGBA")},
    "webp": written("WEBP", "RGB"),
    "webp alpha": written("WEBP", "RGBA"),
    "avif": written("AVIF", "RGB"),
    "avif alpha": written("AVIF", "RGBA"),
    "gif": written("GIF", "P"),
    "bmp": written("BMP", "RGB"),
    "jpeg cmyk": written("JPEG", "CMYK"),
    **{f"png orientation {n}": oriented(n, "PNG") for n in range(1, 9)},
    **{f"jpeg orientation {n}": oriented(n, "JPEG") for n in range(1, 9)},
    "tiff orientation": oriented(6, "TIFF"),
}


@pytest.mark.parametrize("stripe", [5 * WIDTH, 10])
@pytest.mark.parametrize("name", FILES)
def test_stripes_give_the_same_pixels_as_the_whole(
    name: str, stripe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stripes_decoded(FILES[name])
    monkeypatch.setattr(stripes, "STRIPE", stripe)
    in_stripes = stripes_decoded(FILES[name])
    assert in_stripes.shape == whole.shape
    assert np.array_equal(in_stripes, whole)
