"""What Pillow does not read: colours, alpha, parts of PNG, AVIF, BMP, GIF; camera raw files."""

import itertools
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as PillowImage

from models.codec import ENCODABLE, ImageFormat, decode, open_file
from models.codec.colour import cicp_profile
from models.codec.containers import clean_aperture
from models.domain.errors import Undecodable, UnsupportedMedia
from models.domain.image import Pixels
from tests.hostile import chunk
from tests.pictures import as_image, drawing, encoded, exif

LIMIT = 1_000_000
COLOURS = [(200, 100, 50), (60, 160, 90), (90, 110, 200), (128, 128, 128)]
P3 = [(215, 93, 31), (0, 163, 82), (85, 111, 206), (128, 128, 128)]
BT2020 = [(241, 76, 29), (0, 168, 79), (53, 111, 208), (128, 128, 128)]
needs_avif = pytest.mark.skipif(ImageFormat.AVIF not in ENCODABLE, reason="Pillow without AVIF")


def pixels(data: bytes) -> Pixels:
    opened = open_file(data, max_pixels=LIMIT)
    found = opened.decode()
    image = as_image(found.image)
    assert (found.info.width, found.info.height) == (image.width, image.height)
    assert (opened.info.width, opened.info.height) == (image.width, image.height)
    assert image.pixels.shape[2] <= opened.info.most_channels
    return image.pixels


def row(colours: Sequence[Sequence[int]]) -> NDArray[np.uint8]:
    return np.array([colours], np.uint8)


def png(
    samples: NDArray[Any], *more: bytes, depth: int = 8, colour: int = 2, height: int | None = None
) -> bytes:
    rows = samples.astype(">u2" if depth == 16 else "u1")
    raw = b"".join(b"\0" + each.tobytes() for each in rows)
    head = struct.pack(">IIBBBBB", samples.shape[1], height or len(samples), depth, colour, 0, 0, 0)
    parts = [chunk(b"IHDR", head), *more, chunk(b"IDAT", zlib.compress(raw)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


CICP = [
    ((12, 13, 0, 1), P3),
    ((9, 13, 0, 1), BT2020),
    ((1, 13, 0, 1), COLOURS),
    ((1, 1, 0, 1), COLOURS),
    ((2, 2, 0, 1), COLOURS),
    ((1, 8, 0, 1), [(229, 168, 122), (132, 206, 160), (160, 175, 229), (188, 188, 188)]),
    ((12, 13, 0, 0), COLOURS),
    ((99, 13, 0, 1), COLOURS),
]


def test_a_png_names_its_colours_by_cicp() -> None:
    for points, right in CICP:
        found = pixels(png(row(COLOURS), chunk(b"cICP", bytes(points))))
        assert np.abs(found[0].astype(int) - right).max() <= 2


def test_cicp_counts_before_a_profile_and_gamma_alone_does_not_count() -> None:
    other = cicp_profile(9, 13, grey=False)
    assert other is not None
    profile = chunk(b"iCCP", b"a\0\0" + zlib.compress(other))
    assert np.abs(pixels(png(row(COLOURS), profile))[0].astype(int) - BT2020).max() <= 2
    clear = (((12, 13), P3), ((1, 13), COLOURS))
    for points, right in (*clear, ((99, 13), BT2020), ((12, 99), BT2020), ((2, 2), BT2020)):
        data = png(row(COLOURS), chunk(b"cICP", bytes((*points, 0, 1))), profile)
        assert np.abs(pixels(data)[0].astype(int) - right).max() <= 2
    chromaticities = (31270, 32900, 68000, 32000, 26500, 69000, 15000, 6000)
    named = (
        chunk(b"gAMA", struct.pack(">I", 100_000)),
        chunk(b"cHRM", struct.pack(">8I", *chromaticities)),
    )
    assert np.array_equal(pixels(png(row(COLOURS), *named))[0], COLOURS)


def test_grey_and_alpha_keep_their_shape_under_cicp() -> None:
    linear = chunk(b"cICP", bytes((9, 8, 0, 1)))
    grey = pixels(png(np.array([[0, 55, 128, 255]]), linear, colour=0))
    assert grey.shape == (1, 4, 1)
    assert np.abs(grey.ravel().astype(int) - (0, 128, 188, 255)).max() <= 2
    alpha = np.array([[[*each, 7] for each in COLOURS]])
    found = pixels(png(alpha, chunk(b"cICP", bytes((12, 13, 0, 1))), colour=6))
    assert np.abs(found[0].astype(int) - [[*each, 7] for each in P3]).max() <= 2


def test_light_above_the_reference_white_is_white() -> None:
    for transfer in [16, 18]:
        levels = np.repeat(np.arange(256)[np.newaxis, :, np.newaxis], 3, axis=2)
        found = pixels(png(levels, chunk(b"cICP", bytes((9, transfer, 0, 1)))))[0, :, 0].astype(int)
        assert (np.diff(found) >= 0).all()
        white = 148 if transfer == 16 else 191  # 58 and 75 % of the signal are 203 cd/m²
        assert found[0] == 0
        assert found[white + 3] == 255
        assert 225 < found[white - 6] < 255


@needs_avif
def test_an_avif_names_its_colours_by_nclx() -> None:
    for (*points, _, _), right in CICP[:5]:
        picture = PillowImage.fromarray(np.repeat(np.repeat(row(COLOURS), 16, axis=1), 16, axis=0))
        data = encoded(picture, "AVIF", quality=100, subsampling="4:4:4")
        at = data.index(b"nclx") + 4
        data = data[:at] + struct.pack(">HH", *points) + data[at + 4 :]
        assert np.abs(pixels(data)[8, 8::16].astype(int) - right).max() <= 4


@needs_avif
def test_the_clean_aperture_of_an_avif_is_cut_before_it_is_turned() -> None:
    for box, orientation in itertools.product(
        [(0, 0, 32, 32), (13, 7, 20, 31), (33, 31, 64, 48), (1, 1, 64, 48)], [1, 3, 6]
    ):
        whole = encoded(drawing(64, 48), "AVIF", exif=exif(x274=orientation), speed=9)
        stored = np.rot90(pixels(whole), {1: 0, 3: 2, 6: 1}[orientation])
        left, top, right, bottom = box
        cut = stored[top:bottom, left:right]
        assert np.array_equal(
            pixels(with_clap(whole, box, 64, 48)), np.rot90(cut, {1: 0, 3: 2, 6: 3}[orientation])
        )


def with_clap(data: bytes, box: tuple[int, int, int, int], width: int, height: int) -> bytes:
    """Return an AVIF with a clap as the last property of its item."""
    left, top, right, bottom = box
    numbers = (right - left, 1, bottom - top, 1, left + right - width, 2, top + bottom - height, 2)
    clap = struct.pack(">I4sIIIIiIiI", 40, b"clap", *numbers)
    found = {
        name: at
        for name in (b"meta", b"iprp", b"ipco", b"ipma", b"iloc", b"mdat")
        if (at := data.index(name) - 4)
    }
    ipco, ipma = found[b"ipco"], found[b"ipma"]
    size = int.from_bytes(data[ipco : ipco + 4], "big")
    boxes, at = 0, ipco + 8
    while at < ipco + size:
        at, boxes = at + int.from_bytes(data[at : at + 4], "big"), boxes + 1
    count = data[ipma + 18]
    assert data[ipma + 8 : ipma + 18] == struct.pack(">IIH", 0, 1, 1)
    made = bytearray(data)
    end = ipma + 19 + count
    made[end:end] = bytes((0x80 | boxes + 1,))
    made[ipma + 18] = count + 1
    made[ipco + size : ipco + size] = clap
    grown = 41
    for name, more in ((b"ipma", 1), (b"ipco", 40), (b"iprp", grown), (b"meta", grown)):
        place = bytes(made).index(name) - 4
        made[place : place + 4] = struct.pack(
            ">I", int.from_bytes(made[place : place + 4], "big") + more
        )
    old, new = data.index(b"mdat") + 4, bytes(made).index(b"mdat") + 4
    iloc = bytes(made).index(b"iloc")
    stop = iloc + int.from_bytes(made[iloc - 4 : iloc], "big") - 4
    for place in range(iloc, stop - 3):
        if int.from_bytes(made[place : place + 4], "big") == old:
            made[place : place + 4] = struct.pack(">I", new)
    return bytes(made)


def test_a_clean_aperture_outside_of_the_picture_is_ignored() -> None:
    for numbers in [(8, 0, 8, 1, 0, 1, 0, 1), (80, 1, 8, 1, 0, 1, 0, 1), (8, 1, 8, 1, 90, 1, 0, 1)]:
        assert clean_aperture([(b"clap", struct.pack(">IIIIiIiI", *numbers))], 64, 48) is None


def bmp(
    samples: NDArray[Any],
    *,
    size: int = 124,
    compression: int = 3,
    profile: bytes = b"",
    linked: bool = False,
) -> bytes:
    """Return a BMP of 32 bits in BGRA, bottom up."""
    height, width = samples.shape[:2]
    body = samples[::-1, :, [2, 1, 0, 3]].astype(np.uint8).tobytes()
    head = struct.pack(
        "<IiiHHIIiiII", size, width, height, 1, 32, compression, len(body), 0, 0, 0, 0
    )
    head += struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    kind = b"KNIL" if linked else b"DEBM" if profile else b"BGRs"
    head = (head + kind).ljust(112, b"\0") + struct.pack("<II", 124 + len(body), len(profile))
    head = head.ljust(124, b"\0")[:size]
    start = 14 + len(head)
    head = struct.pack("<IHHI", start + len(body) + len(profile), 0, 0, start) + head
    return b"BM" + head + body + profile


def test_a_bmp_with_alpha_0_everywhere_is_opaque() -> None:
    for size in [56, 108, 124]:
        samples = np.array([[[200, 100, 50, 0], [30, 20, 10, 0]], [[1, 2, 3, 0], [4, 5, 6, 0]]])
        found = pixels(bmp(samples, size=size))
        assert np.array_equal(found[..., :3], samples[..., :3])
        assert (found[..., 3:] == 255).all()
        samples[0, 1, 3] = 1
        assert np.array_equal(pixels(bmp(samples, size=size)), samples)


def test_a_bmp_without_an_alpha_mask_is_opaque() -> None:
    samples = np.array([[[200, 100, 50, 0], [30, 20, 10, 9]]])
    assert np.array_equal(pixels(bmp(samples, size=40, compression=0)), samples[..., :3])


def test_the_profile_of_a_bmp_is_applied() -> None:
    profile = cicp_profile(12, 13, grey=False)
    assert profile is not None
    samples = np.array([[[*each, 255] for each in COLOURS]])
    found = pixels(bmp(samples, profile=profile))
    assert np.abs(found[0, :, :3].astype(int) - P3).max() <= 2
    linked = pixels(bmp(samples, profile=b"c:\\profile.icc", linked=True))
    assert np.array_equal(linked[0, :, :3], COLOURS)


def gif(
    canvas: tuple[int, int], box: tuple[int, int, int, int], *, transparent: bool = False
) -> bytes:
    left, top, right, bottom = box
    frame = PillowImage.new("P", (right - left, bottom - top), 1)
    frame.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9])
    options: dict[str, Any] = {"transparency": 2} if transparent else {}
    data = bytearray(encoded(frame, "GIF", optimize=False, **options))
    data[6:10] = struct.pack("<HH", *canvas)
    at = bytes(data).index(b",", 13 + (3 << (data[10] & 7) + 1))
    data[at + 1 : at + 5] = struct.pack("<HH", left, top)
    return bytes(data)


def test_pixels_outside_of_the_first_frame_of_a_gif_are_transparent() -> None:
    for box, transparent in itertools.product(
        [(1, 1, 3, 3), (0, 0, 3, 2), (2, 1, 5, 4), (0, 2, 5, 4)], [False, True]
    ):
        found = pixels(gif((5, 4), box, transparent=transparent))
        left, top, right, bottom = box
        alpha = np.zeros((4, 5), np.uint8)
        alpha[top:bottom, left:right] = 255
        assert np.array_equal(found[..., 3], alpha)
        assert (found[top:bottom, left:right, :3] == (0, 255, 0)).all()


def test_pixels_outside_of_the_first_frame_of_a_webp_are_transparent() -> None:
    for mode in ["RGB", "RGBA"]:
        frames = [drawing(16, 8, seed, mode) for seed in range(2)]
        data = encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)
        assert pixels(data).shape == (8, 16, 3)
        found = pixels(data[:24] + bytes((19, 0, 0, 9, 0, 0)) + data[30:])
        assert np.array_equal(found[:8, :16, :3], np.asarray(frames[0].convert("RGB")))
        assert found[..., 3].sum() == 255 * 16 * 8


def test_damaged_ancillary_chunks_are_ignored() -> None:
    for colour, name in itertools.product(
        [0, 2],
        [b"tEXt", b"iCCP", b"pHYs", b"eXIf", b"tRNS", b"cICP", b"gAMA", b"sRGB", b"acTL", b"prIv"],
    ):
        samples = row(COLOURS)[..., : colour + 1]
        plain = png(samples, colour=colour)
        sound = chunk(b"tEXt", b"Copyright\0notice")
        wrong = chunk(name, b"Title\0\0content", wrong=True)
        for damaged in (wrong, chunk(name, b""), chunk(name, b"\0")):
            for data in (
                png(samples, damaged, sound, damaged, colour=colour),
                png(samples, sound, colour=colour)[:-12] + damaged + chunk(b"IEND", b""),
            ):
                assert np.array_equal(pixels(data), pixels(plain))
                assert decode(data, max_pixels=LIMIT).copyright == "notice"


def test_critical_chunks_with_a_wrong_checksum_are_refused() -> None:
    for name in [b"IHDR", b"PLTE"]:
        palette = chunk(b"PLTE", bytes(12), wrong=name == b"PLTE")
        data = png(np.zeros((1, 4), np.uint8), palette, colour=3)
        if name == b"IHDR":
            data = data[:29] + bytes(4) + data[33:]
        with pytest.raises(Undecodable):
            decode(data, max_pixels=LIMIT)


def test_a_transparent_colour_of_16_bits_counts_by_all_bits_of_grey_and_8_of_rgb() -> None:
    colour = (0x1234, 0x5678, 0x9ABC)
    samples = np.zeros((300, 3, 3), np.uint16) + np.array(colour, np.uint16)
    samples[5, 0, 2] += 1
    samples[7, 1, 0] += 256
    found = pixels(png(samples, chunk(b"tRNS", struct.pack(">HHH", *colour)), depth=16))
    assert np.argwhere(found[..., 3]).tolist() == [[7, 1]]
    assert np.array_equal(found[..., :3], samples >> 8)
    grey = np.full((2, 3), 0x1234, np.uint16)
    grey[0, 0] += 1
    found = pixels(png(grey, chunk(b"tRNS", struct.pack(">H", 0x1234)), depth=16, colour=0))
    assert found[..., 3].tolist() == [[255, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("value", [0, 77], ids=["black", "grey"])
@pytest.mark.parametrize("missing", [0, 1, 15, 30])
def test_a_png_with_missing_rows_is_refused(missing: int, value: int) -> None:
    samples = np.full((30 - missing, 20, 3), value)
    data = png(samples, height=30)
    if not missing:
        assert (pixels(data) == value).all()
        return
    with pytest.raises(Undecodable):
        decode(data, max_pixels=LIMIT)


def test_interlaced_pngs_are_whole_with_all_their_passes() -> None:
    kinds = [(0, 1, 1), (0, 8, 1), (3, 8, 1), (2, 8, 3), (6, 8, 4)]
    begin = (0, 4, 0, 2, 0, 1, 0), (0, 0, 4, 0, 2, 0, 1)
    step = (8, 8, 4, 4, 2, 2, 1), (8, 8, 8, 4, 4, 2, 2)
    sizes = [(1, 1), (3, 2), (8, 8), (17, 9)]
    for (colour, depth, samples), (width, height) in itertools.product(kinds, sizes):
        raw = b""
        for left, top, across, down in zip(*begin, *step, strict=True):
            columns, rows = len(range(left, width, across)), len(range(top, height, down))
            if columns:
                raw += (b"\0" + bytes(-(-columns * samples * depth // 8))) * rows
        head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 1))
        head += chunk(b"PLTE", bytes(12)) if colour == 3 else b""
        for content, whole in ((raw, True), (raw[:-1], False)):
            body = chunk(b"IDAT", zlib.compress(content)) + chunk(b"IEND", b"")
            data = b"\x89PNG\r\n\x1a\n" + head + body
            if whole:
                assert pixels(data).shape[:2] == (height, width)
            else:
                with pytest.raises(Undecodable):
                    decode(data, max_pixels=LIMIT)


def raw_file(*entries: tuple[int, int, int, int], order: str = "<", magic: bytes = b"") -> bytes:
    """Return a TIFF of one grey pixel with these further entries, and a maker at offset 200."""
    own = [
        (256, 3, 1, 1),
        (257, 3, 1, 1),
        (258, 3, 1, 8),
        (259, 3, 1, 1),
        (273, 4, 1, 250),
        (279, 4, 1, 1),
    ]
    known = {tag for tag, *_ in entries}
    given = sorted([*(each for each in own if each[0] not in known), *entries])
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 16) + magic
    body = struct.pack(order + "H", len(given))
    for tag, kind, number, value in given:
        place = (value, 0) if kind == 3 else (value,)
        body += struct.pack(order + "HHI" + ("HH" if kind == 3 else "I"), tag, kind, number, *place)
    return (head.ljust(16, b"\0") + body + bytes(4)).ljust(200, b"\0")


MAKERS = {
    "NEF": b"NIKON CORPORATION",
    "ARW": b"SONY",
    "PEF": b"PENTAX",
    "SRW": b"SAMSUNG",
    "TIFF/EP": b"Some Maker",
}
THUMBNAIL, SUB_IFDS, MAKE = (254, 4, 1, 1), (330, 4, 1, 16), (271, 2, 20, 200)
BLACK = (262, 3, 1, 1)


def test_camera_raw_files_are_refused_by_name() -> None:
    for kind, order in itertools.product(MAKERS, "<>"):
        maker = MAKERS[kind].ljust(50, b"\0") + b"\7"
        for entries in ((THUMBNAIL, SUB_IFDS, MAKE, BLACK), (MAKE, (262, 3, 1, 32803))):
            data = raw_file(*entries, order=order) + maker
            with pytest.raises(UnsupportedMedia, match=rf"camera raw file \({kind}\).*convert"):
                open_file(data, max_pixels=LIMIT)
        ordinary = raw_file(MAKE, BLACK, order=order) + maker
        assert pixels(ordinary).tolist() == [[[7]]]
        assert pixels(raw_file(SUB_IFDS, MAKE, BLACK, order=order) + maker).tolist() == [[[7]]]
        assert pixels(raw_file(THUMBNAIL, MAKE, BLACK, order=order) + maker).tolist() == [[[7]]]


def test_camera_raw_files_are_refused_by_their_marks() -> None:
    for kind, data in [
        ("DNG", raw_file((50706, 1, 4, 0x01040000), THUMBNAIL, BLACK)),
        ("CR2", raw_file(BLACK, magic=b"CR\2\0")),
        ("CR3", b"\0\0\0\x18ftypcrx \0\0\0\1crx isom"),
        ("RAF", b"FUJIFILMCCD-RAW 0201FF393101"),
        ("ORF", b"IIRO\x08\0\0\0"),
        ("ORF", b"MMOR\0\0\0\x08"),
        ("RW2", b"IIU\0\x18\0\0\0"),
    ]:
        with pytest.raises(UnsupportedMedia, match=rf"camera raw file \({kind}\)"):
            open_file(data, max_pixels=LIMIT)
