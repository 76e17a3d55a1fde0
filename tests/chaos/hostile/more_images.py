"""Files that stay below one bound of their format and try another: few parts, but costly ones."""

import io
import struct
import zlib

from PIL import Image

from tests.chaos.hostile import jpeg, png

_SIDE = 7000


def jpeg_without_data(side: int = _SIDE, marker: int = 0xC0) -> bytes:
    """Return a picture without data for its pixels; `marker` names the kind of coding."""
    components = b"".join(bytes([n, 0x11, 0]) for n in (1, 2, 3))
    scan = bytes([3, 1, 0x00, 2, 0x00, 3, 0x00, 0, 63, 0])
    parts = (
        b"\xff\xd8",
        jpeg.segment(0xDB, bytes([0]) + bytes([16] * 64)),
        jpeg.segment(marker, struct.pack(">BHHB", 8, side, side, 3) + components),
        jpeg.segment(0xC4, bytes([0x00, 1, *[0] * 15, 0]) + bytes([0x10, 1, *[0] * 15, 0])),
        jpeg.segment(0xDA, scan),
        bytes(100),
        b"\xff\xd9",
    )
    return b"".join(parts)


def jpeg_profile(segments: int = 255) -> bytes:
    """Return a picture with a colour profile of 16 MB in as many segments as it may have."""
    image = jpeg.plain()
    parts = (
        jpeg.segment(0xE2, b"ICC_PROFILE\0" + bytes([n, segments]) + bytes(65_519))
        for n in range(1, segments + 1)
    )
    return image[:2] + b"".join(parts) + image[2:]


def jpeg_profiles_of_one(segments: int = 255) -> bytes:
    """Pieces of profiles that all say they are the first of one."""
    image = jpeg.plain()
    part = jpeg.segment(0xE2, b"ICC_PROFILE\0" + bytes([1, 1]) + bytes(65_519))
    return image[:2] + part * segments + image[2:]


def jpeg_many_pictures(count: int = (1 << 32) - 1) -> bytes:
    """Return an index of several pictures (MPF) that announces four thousand million of them."""
    entries = struct.pack("<H", 3) + struct.pack("<HHI4s", 0xB000, 7, 4, b"0100")
    entries += struct.pack("<HHII", 0xB001, 4, 1, count)
    entries += struct.pack("<HHII", 0xB002, 7, 60_000, 50) + bytes(4)
    index = b"MPF\0II*\0" + struct.pack("<I", 8) + entries + bytes(60_000)
    image = jpeg.plain()
    return image[:2] + jpeg.segment(0xE2, index) + image[2:]


def jpeg_extended_xmp(segments: int = 490) -> bytes:
    """Thirty megabytes of XMP whose orientation is never there."""
    text = b"http://ns.adobe.com/xap/1.0/\0" + b'tiff:Orientation="' * 3600
    return jpeg.plain()[:2] + jpeg.segment(0xE1, text) * segments + jpeg.plain()[2:]


def jpeg_looping_exif() -> bytes:
    """EXIF whose directories lead to each other."""
    entries = struct.pack("<H", 3)
    for tag in (0x8769, 0x8825, 0xA005):
        entries += struct.pack("<HHII", tag, 4, 1, 8)
    block = b"Exif\0\0II*\0" + struct.pack("<I", 8) + entries + struct.pack("<I", 8)
    image = jpeg.plain()
    return image[:2] + jpeg.segment(0xE1, block) + image[2:]


def jpeg_restart_each_block(side: int = 6992) -> bytes:
    """Return a picture whose restart interval is one block, and that has no marker."""
    image = jpeg_without_data(side)
    at = image.index(b"\xff\xda")
    return image[:at] + jpeg.segment(0xDD, b"\0\1") + image[at:]


def _stored_png(packed: bytes, width: int = 64, height: int = 64) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rest = png.chunk(b"IDAT", packed) + png.chunk(b"IEND")
    return png.SIGNATURE + png.chunk(b"IHDR", header) + rest


def png_empty_blocks(size: int = 30_000_000) -> bytes:
    """Pixels behind six million empty blocks of deflate."""
    blocks = b"\0\0\0\xff\xff" * (size // 5)
    return _stored_png(b"\x78\x9c" + blocks + zlib.compress(bytes(193 * 64))[2:])


def png_huffman_tables(size: int = 30_000_000) -> bytes:
    """Two million blocks that have a Huffman table each and no byte."""
    bits = _empty_block()
    whole = bits * 8  # eight blocks end at a whole byte
    packed = int(whole[::-1], 2).to_bytes(len(whole) // 8, "little")
    return _stored_png(b"\x78\x9c" + packed * (size // len(packed)))


def _empty_block() -> str:
    """Bits of one dynamic block: 257 literals of which the end alone has a code."""
    lengths = {18: 1, 1: 2, 0: 2}
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1)
    head = "0" + "01" + "00000" + "00000" + format(14, "04b")[::-1]
    head += "".join(format(lengths.get(each, 0), "03b")[::-1] for each in order)
    zeros = "0" + format(138 - 11, "07b")[::-1] + "0" + format(118 - 11, "07b")[::-1]
    # Code 18 twice for 256 zeros, then lengths 1 (the end of the block) and 1 (one distance).
    return head + zeros + "11" + "11" + "0"


def png_interlaced(side: int = _SIDE) -> bytes:
    """Return an interlaced picture of 16 bits with alpha, all zeros: 392 MB of rows in 0.4 MB."""
    packer = zlib.compressobj(9)
    starts = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2))
    data = b""
    for x, y, across, down in (*starts, (0, 1, 1, 2)):
        width, rows = -(-(side - x) // across), -(-(side - y) // down)
        row = bytes(1 + 8 * width)
        data += b"".join(packer.compress(row) for _ in range(rows))
    data += packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 16, 6, 0, 0, 1)
    rest = png.chunk(b"IDAT", data) + png.chunk(b"IEND")
    return png.SIGNATURE + png.chunk(b"IHDR", header) + rest


def png_thin(width: int, height: int) -> bytes:
    """Return a grey picture of one row or one column."""
    packer = zlib.compressobj(9)
    piece = bytes(1 << 20)
    size = height * (1 + width)
    data = b"".join(packer.compress(piece) for _ in range(size >> 20))
    data += packer.compress(bytes(size & ((1 << 20) - 1))) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rest = png.chunk(b"IDAT", data) + png.chunk(b"IEND")
    return png.SIGNATURE + png.chunk(b"IHDR", header) + rest


def png_international_text(count: int = 9000) -> bytes:
    """Nine thousand compressed texts in iTXt, a megabyte each when they are opened."""
    body = b"a\0\1\0\0\0" + zlib.compress(bytes(1_000_000), 9)
    return png.many_chunks(count, b"iTXt", body)


def png_profiles(count: int = 9000) -> bytes:
    """Nine thousand colour profiles, a megabyte each when they are opened."""
    return png.many_chunks(count, b"iCCP", b"p\0\0" + zlib.compress(bytes(1_000_000), 9))


def gif_comment(size: int = 30_000_000) -> bytes:
    """Return a picture behind a comment of thirty megabytes in 118,000 blocks."""
    block = b"\xff" + b"c" * 255
    out = io.BytesIO()
    Image.linear_gradient("L").resize((64, 64)).save(out, "GIF")
    image = out.getvalue()
    at = image.index(b"\x2c", 13 + 3 * (2 << (image[10] & 7)))
    return image[:at] + b"\x21\xfe" + block * (size // 256) + b"\0" + image[at:]


def gif_lzw(side: int = _SIDE) -> bytes:
    """Return a picture of 49 megapixels in the longest strings that LZW has."""
    out = io.BytesIO()
    Image.new("P", (side, side)).save(out, "GIF")
    return out.getvalue()


def gif_clear_codes(size: int = 16_000_000, side: int = _SIDE) -> bytes:
    """Forty million codes that clear the table and give no pixel."""
    head = b"GIF89a" + struct.pack("<HHBBB", side, side, 0x80, 0, 0) + bytes(6)
    picture = b"\x2c" + struct.pack("<HHHHB", 0, 0, side, side, 0) + b"\x02"
    block = b"\xff" + int("100" * 680, 2).to_bytes(255, "little")
    return head + picture + block * (size // 256) + b"\0\x3b"


def bmp_head(width: int, height: int, colours: int = 0, offset: int = 54, bits: int = 24) -> bytes:
    """Return a header with sizes that no picture has, and a few bytes of pixels."""
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, 0, 0, 1, 1, colours, 0)
    return b"BM" + struct.pack("<IHHI", 100, 0, 0, offset) + info + bytes(4000)


def webp_frames_allowed(count: int = 19_000) -> bytes:
    """Return an animation of as many frames as are allowed, on a canvas of 49 megapixels."""
    out = io.BytesIO()
    Image.new("RGB", (16, 16)).save(out, "WEBP")
    one = out.getvalue()[12:]
    frame = (
        b"ANMF" + struct.pack("<I", 16 + len(one)) + bytes(6) + b"\x0f\0\0\x0f\0\0\1\0\0\0" + one
    )
    side = struct.pack("<I", _SIDE - 1)[:3]
    extended = b"VP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + side * 2
    body = b"WEBP" + extended + b"ANIM" + struct.pack("<I", 6) + bytes(6) + frame * count
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_lying_frame(side: int = 16_383) -> bytes:
    """Return a canvas of 64 by 64 with frames that claim the largest size there can be."""
    out = io.BytesIO()
    Image.new("RGB", (64, 64)).save(out, "WEBP")
    one = bytearray(out.getvalue()[12:])
    at = one.index(b"\x9d\x01\x2a") + 3
    one[at : at + 4] = struct.pack("<HH", side, side)
    frame = b"ANMF" + struct.pack("<I", 16 + len(one)) + bytes(6) + b"\x3f\0\0\x3f\0\0\1\0\0\0"
    extended = b"VP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + b"\x3f\0\0\x3f\0\0"
    animation = b"ANIM" + struct.pack("<I", 6) + bytes(6)
    body = b"WEBP" + extended + animation + (frame + one) * 2
    return b"RIFF" + struct.pack("<I", len(body)) + body


def lossless_webp(side: int = _SIDE) -> bytes:
    """Return a flat lossless picture of 49 megapixels with alpha."""
    out = io.BytesIO()
    Image.new("RGBA", (side, side), (9, 99, 199, 9)).save(out, "WEBP", lossless=True, method=0)
    return out.getvalue()


def avif_lying_size(side: int = 7000) -> bytes:
    """Return a picture that says it is 64 by 64 while its coded frame is 49 megapixels."""
    out = io.BytesIO()
    Image.new("RGB", (side, side)).save(out, "AVIF", speed=10, quality=10)
    data = bytearray(out.getvalue())
    at = data.index(b"ispe") + 8
    data[at : at + 8] = struct.pack(">II", 64, 64)
    return bytes(data)


def _box(name: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I", 8 + len(body)) + name + body


def avif_grid(across: int = 63, down: int = 63) -> bytes:
    """Return a grid of nearly four thousand tiles that all are the same bytes."""
    out = io.BytesIO()
    Image.new("RGB", (64, 64), (9, 99, 199)).save(out, "AVIF", quality=10, subsampling="4:4:4")
    tile = out.getvalue()
    coded = tile[tile.index(b"mdat") + 4 :]
    at = tile.index(b"av1C") - 4
    config = tile[at : at + int.from_bytes(tile[at : at + 4], "big")]
    n = across * down
    width, height = 64 * across, 64 * down

    def meta(place: int) -> bytes:
        infe = b"".join(
            _box(b"infe", b"\2\0\0\0", struct.pack(">HH", each, 0), b"av01\0")
            for each in range(2, n + 2)
        )
        grid_item = _box(b"infe", b"\2\0\0\0", struct.pack(">HH", 1, 0), b"grid\0")
        grid = struct.pack(">BBBBHH", 0, 0, down - 1, across - 1, width, height)
        tiles = struct.pack(">HH", 1, n) + struct.pack(f">{n}H", *range(2, n + 2))
        places = struct.pack(">HHHII", 1, 0, 1, place, len(grid)) + b"".join(
            struct.pack(">HHHII", each, 0, 1, place + len(grid), len(coded))
            for each in range(2, n + 2)
        )
        sizes = (
            _box(b"ispe", bytes(4), struct.pack(">II", width, height)),
            _box(b"ispe", bytes(4), struct.pack(">II", 64, 64)),
            config,
            _box(b"pixi", bytes(4), b"\3\x08\x08\x08"),
        )
        uses = (
            struct.pack(">HB", 1, 2)
            + b"\1\4"
            + b"".join(struct.pack(">HB", each, 3) + b"\2\x83\4" for each in range(2, n + 2))
        )
        return _box(
            b"meta",
            bytes(4),
            _box(b"hdlr", bytes(8), b"pict", bytes(13)),
            _box(b"pitm", bytes(4), struct.pack(">H", 1)),
            _box(b"iloc", bytes(4), b"\x44\0", struct.pack(">H", n + 1), places),
            _box(b"iinf", bytes(4), struct.pack(">H", n + 1), grid_item, infe),
            _box(b"iref", bytes(4), _box(b"dimg", tiles)),
            _box(
                b"iprp",
                _box(b"ipco", *sizes),
                _box(b"ipma", bytes(4), struct.pack(">I", n + 1), uses),
            ),
        )

    kind = _box(b"ftyp", b"avif", bytes(4), b"avifmif1miaf")
    place = len(kind) + len(meta(0)) + 8
    grid = struct.pack(">BBBBHH", 0, 0, down - 1, across - 1, width, height)
    return kind + meta(place) + _box(b"mdat", grid, coded)
