"""Files that cost far more than their size suggests, made by the tests: each kind of each
format.
"""

import io
import struct
import zlib
from collections.abc import Callable, Sequence
from operator import itemgetter

import numpy as np
from PIL import Image


def small(format_: str, size: tuple[int, int] = (16, 16), **options: object) -> bytes:
    """Return a small grey image in a format."""
    file = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(file, format_, **options)
    return file.getvalue()


def chunk(name: bytes, body: bytes = b"", *, wrong: bool = False) -> bytes:
    """Return a PNG chunk with its checksum, or a `wrong` one."""
    checksum = zlib.crc32(name + body) ^ wrong
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", checksum)


Tag = tuple[int, int, int, int]
"""The number of a tag of TIFF, its type, the count of its values, and its value or their place."""


def tiff(tags: Sequence[Tag], body: bytes = b"") -> bytes:
    """Return a little-endian TIFF of one directory; offsets of 0 are replaced by the start of
    `body`.
    """
    start = 8 + 2 + 12 * len(tags) + 4
    entries = b"".join(
        struct.pack("<HHII", tag, kind, n, start if tag in (273, 324) and n == 1 else value)
        for tag, kind, n, value in sorted(tags, key=itemgetter(0))
    )
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + body


def _tags(width: int, height: int, compression: int = 1, n: int = 1, bits: int = 8) -> list[Tag]:
    """Return the tags of an image of `n` samples a pixel, which are grey, RGB or RGBA."""
    return [
        *((256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, bits), (259, 3, 1, compression)),
        *(
            (262, 3, 1, 2 if n in (3, 4) else 1),
            (277, 3, 1, n),
            *([(338, 3, 1, 2)] if n == 4 else []),
        ),
    ]


def large_tile(
    side: int, tile: int, samples: int = 3, bits: int = 8, beside: Sequence[Tag] = ()
) -> bytes:
    """Return a picture of `side` by `side` in one tile of `tile` by `tile`; `beside` are further
    tags.
    """
    body = zlib.compress(bytes(tile * tile * samples * bits // 8), 1)
    where = [(322, 4, 1, tile), (323, 4, 1, tile), (324, 4, 1, 0), (325, 4, 1, len(body))]
    return tiff([*_tags(side, side, 8, samples, bits), *where, *beside], body)


def huge_strip() -> bytes:
    """Return a picture of 64 by 64 in one strip of 1 GB that announces a hundred million rows."""
    packer = zlib.compressobj(9)
    body = b"".join(packer.compress(bytes(1_000_000)) for _ in range(1000)) + packer.flush()
    where = [(273, 4, 1, 0), (278, 4, 1, 100_000_000), (279, 4, 1, len(body))]
    return tiff([*_tags(64, 64, 8, 3), *where], body)


def tiff_of_strips(n: int = 700_000) -> bytes:
    """Return an image of `n` rows with a strip for each; all strips are the same byte."""
    offset = 8 + 2 + 12 * 9 + 4
    where = [(273, 4, n, offset), (278, 4, 1, 1), (279, 4, n, offset)]
    return tiff(_tags(8, n) + where, np.full(n, 8, "<u4").tobytes())


def tiff_of_samples() -> bytes:
    """Return an image that announces 65,535 samples for each pixel."""
    return tiff([*_tags(64, 64, n=65_535), (273, 4, 1, 0), (279, 4, 1, 100)], bytes(100))


def jpeg_of_scans(scans: int = 90, side: int = 7000) -> bytes:
    """Return a progressive grey JPEG whose scans refine nothing, and cost a pass over all pixels
    each.
    """
    table = bytes([0xFF, 0xC4, 0, 20, 0x00, 1, *bytes(15), 0]) + bytes(
        [0xFF, 0xC4, 0, 20, 0x10, 1, *bytes(15), 0]
    )
    quant = b"\xff\xdb\0\x43\0" + bytes([1] * 64)
    frame = b"\xff\xc2\0\x0b\x08" + struct.pack(">HHB", side, side, 1) + b"\x01\x11\0"
    blocks = (-(-side // 8)) ** 2
    dc = b"\xff\xda\0\x08\x01\x01\0\0\0\0" + bytes(-(-blocks // 8))
    run = bytes([0xFF, 0xC4, 0, 20, 0x10, 1, *bytes(15), 0xE0])  # 2^14 blocks without anything
    runs = -(-blocks // 32767)
    ac = run + b"\xff\xda\0\x08\x01\x01\0" + bytes([1, 63, 0]) + bytes(2 * runs + 2)
    return b"\xff\xd8" + quant + frame + table + dc + ac * (scans - 1) + b"\xff\xd9"


def jpeg_of_photoshop_resources(segments: int = 400) -> bytes:
    """Return a JPEG with `segments` segments of 5,400 empty Photoshop resources."""
    plain = small("JPEG")
    body = b"Photoshop 3.0\0" + (b"8BIM\0\0\0\0" + bytes(4)) * 5400
    segment = b"\xff\xed" + struct.pack(">H", len(body) + 2) + body
    return plain[:2] + segment * segments + plain[2:]


def jpeg_of_exif_segments(n: int = 500) -> bytes:
    """Return a JPEG with `n` EXIF segments that announce 2**40 entries."""
    plain = small("JPEG")
    body = b"Exif\0\0II+\0" + struct.pack("<HHQQ", 8, 0, 16, 1 << 40) + bytes(60_000)
    segment = b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body
    return plain[:2] + segment * n + plain[2:]


def png_of_text_bombs(n: int = 500) -> bytes:
    """Return a PNG with `n` pairs of compressed texts of 1 MiB."""
    plain = small("PNG")
    bomb = zlib.compress(bytes(1 << 20), 9)
    one = chunk(b"zTXt", b"k\0\0" + bomb) + chunk(b"iTXt", b"k\0\1\0\0\0" + bomb)
    return plain[:33] + one * n + plain[33:]


def png_with_a_profile_bomb() -> bytes:
    """Return a PNG with a compressed colour profile of 200 MiB."""
    plain = small("PNG")
    bomb = zlib.compress(bytes(200 << 20), 9)
    return plain[:33] + chunk(b"iCCP", b"k\0\0" + bomb) + plain[33:]


def _first_frame(gif: bytes | bytearray) -> int:
    return gif.find(b",\0\0\0\0\x10\0\x10\0")


def gif_with_a_giant_frame() -> bytes:
    """Return a GIF whose picture announces 65,000 × 65,000 pixels."""
    plain = bytearray(small("GIF"))
    at = _first_frame(plain)
    plain[at + 5 : at + 9] = struct.pack("<HH", 65_000, 65_000)
    return bytes(plain)


def _bmp(width: int, height: int, runs: bytes) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(runs), 0, 0, 256, 0)
    start = 14 + 40 + 1024
    return (
        b"BM" + struct.pack("<IHHI", start + len(runs), 0, 0, start) + header + bytes(1024) + runs
    )


def bmp_of_deltas(n: int = 8_000_000) -> bytes:
    """Return a BMP with `n` run-length codes that move by nothing."""
    return _bmp(5000, 5000, b"\0\x02\0\0" * n)


def webp_with_a_giant_canvas() -> bytes:
    """Return a WebP of one small frame on a canvas of 16,384 × 16,384 pixels."""
    canvas = b"VP8X" + struct.pack("<I", 10) + bytes([2, 0, 0, 0]) + b"\xff\x3f\0" * 2
    frame = b"ANIM" + struct.pack("<I", 6) + bytes(6)
    still = small("WEBP")[12:]
    body = b"WEBP" + canvas + frame + b"ANMF" + struct.pack("<I", 16 + len(still))
    body += bytes(6) + b"\x0f\0\0" * 2 + bytes(4) + still
    return b"RIFF" + struct.pack("<I", len(body)) + body


def avif_with_a_giant_image() -> bytes:
    """Return an AVIF that announces 32,000 × 32,000 pixels."""
    plain = bytearray(small("AVIF"))
    at = plain.find(b"ispe") + 8
    plain[at : at + 8] = struct.pack(">II", 32_000, 32_000)
    return bytes(plain)


def avif_lying_size(side: int = 7000) -> bytes:
    """Return a picture that says it is 64 × 64 while its coded frame has `side` × `side` pixels."""
    file = io.BytesIO()
    Image.new("RGB", (side, side)).save(file, "AVIF", speed=10, quality=10, max_threads=1)
    data = bytearray(file.getvalue())
    at = data.index(b"ispe") + 8
    data[at : at + 8] = struct.pack(">II", 64, 64)
    return bytes(data)


def segment(marker: int, body: bytes) -> bytes:
    """Return a marker of a JPEG with its length and body."""
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def in_first_scan(data: bytes) -> bytes:
    """Return an ordinary progressive JPEG with `data` before those of its first scan."""
    whole = small("JPEG", (64, 64), progressive=True)
    header = whole.index(b"\xff\xda") + 2
    start = header + int.from_bytes(whole[header : header + 2], "big")
    return whole[:start] + data + whole[start:]


def profile_of_stages(stages: int = 100, segments: int = 270) -> bytes:
    """Return a colour profile of 9 kB that LittleCMS evaluates for 19 s.

    It has one element of three curves of many segments, named as each of its stages
    (multiProcessElementsType of ICC.1:2022, section 10.16).
    """
    segment = b"parf" + bytes(4) + struct.pack(">HH4f", 0, 0, 1.1, 1.0, 0.0, 0.0)
    breaks = [number / segments for number in range(1, segments)]
    curve = b"curf" + bytes(4) + struct.pack(f">HH{len(breaks)}f", segments, 0, *breaks)
    curve += segment * segments
    curves = b"cvst" + bytes(4) + struct.pack(">HH", 3, 3)
    curves += struct.pack(">II", len(curves) + 24, len(curve)) * 3 + curve
    table = struct.pack(">II", 16 + 8 * stages, len(curves)) * stages
    element = b"mpet" + bytes(4) + struct.pack(">HHI", 3, 3, stages) + table + curves
    tags = struct.pack(">I4sII", 1, b"D2B1", 144, len(element))
    head = struct.pack(">I4sI", 144 + len(element), bytes(4), 0x04300000) + b"mntrRGB XYZ "
    return head.ljust(36, b"\0") + b"acsp" + bytes(88) + tags + element


REFUSED: dict[str, Callable[[], bytes]] = {
    each.__name__: each
    for each in (
        *(tiff_of_samples, jpeg_of_scans, jpeg_of_photoshop_resources, jpeg_of_exif_segments),
        *(png_of_text_bombs, png_with_a_profile_bomb, gif_with_a_giant_frame),
        *(webp_with_a_giant_canvas, avif_with_a_giant_image),
    )
}
"""Files that are refused before much is spent; the limits of a decoder process end all further
kinds."""
