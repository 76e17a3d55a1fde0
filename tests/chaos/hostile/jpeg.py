"""JPEGs that are small to send and expensive to decode: scans, segments, fill bytes."""

import io
import struct

from PIL import Image

_EOB_RUN_32767 = 0xE0
"""Symbol of an end-of-band run with 14 further bits."""


def segment(marker: int, body: bytes) -> bytes:
    """Return a marker with its length and body."""
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def plain(side: int = 64) -> bytes:
    """Return an ordinary baseline JPEG."""
    out = io.BytesIO()
    Image.linear_gradient("L").resize((side, side)).convert("RGB").save(out, "JPEG", quality=90)
    return out.getvalue()


def progressive(side: int = 7000, scans: int = 90, refining: bool = True) -> bytes:
    """Return a progressive JPEG of `side` by `side` pixels whose every scan passes over all blocks.

    One bit a block for the DC values; every further scan is a few end-of-band runs, so that it
    costs some 100 bytes. Refining scans look at all 63 coefficients of each block.
    """
    blocks = (-(-side // 8)) ** 2
    parts = [b"\xff\xd8", segment(0xDB, bytes([0]) + bytes([16] * 64))]
    components = b"".join(bytes([n, 0x11, 0]) for n in (1, 2, 3))
    parts.append(segment(0xC2, struct.pack(">BHHB", 8, side, side, 3) + components))
    parts.append(segment(0xC4, _table(0x00, bytes([0])) + _table(0x10, bytes([_EOB_RUN_32767]))))
    parts += [_scan(component, 0, 0, 0, 1) + bytes(-(-blocks // 8)) for component in (1, 2, 3)]
    runs = _runs(blocks)
    for number in range(scans - 3):
        component = 1 + number % 3
        if refining:
            parts.append(_scan(component, 1, 63, 1, 0) + runs)
        else:
            band = 1 + (number // 3) % 63
            parts.append(_scan(component, band, band, 0, 0) + runs)
    return b"".join([*parts, b"\xff\xd9"])


def in_first_scan(data: bytes) -> bytes:
    """Return an ordinary progressive JPEG with `data` before those of its first scan."""
    out = io.BytesIO()
    image = Image.linear_gradient("L").resize((64, 64)).convert("RGB")
    image.save(out, "JPEG", progressive=True)
    whole = out.getvalue()
    header = whole.index(b"\xff\xda") + 2
    start = header + int.from_bytes(whole[header : header + 2], "big")
    return whole[:start] + data + whole[start:]


def many_restarts(size: int = 30_000_000) -> bytes:
    """Return an ordinary scan followed by restart markers."""
    image = plain()
    markers = b"".join(bytes([0xFF, 0xD0 + n]) for n in range(8))
    return image[:-2] + markers * (size // len(markers)) + image[-2:]


def _table(kind: int, symbols: bytes) -> bytes:
    """Return a Huffman table with one code of one bit."""
    return bytes([kind, len(symbols), *[0] * 15]) + symbols


def _scan(component: int, first: int, last: int, high: int, low: int) -> bytes:
    return segment(0xDA, bytes([1, component, 0x00, first, last, high << 4 | low]))


def _runs(blocks: int) -> bytes:
    """Return end-of-band runs over that many blocks: code 0, then 14 bits."""
    bits, left = "", blocks
    while left:
        # A run of less than 16384 blocks needs another symbol: run past the end instead.
        run = max(min(left, 32767), 16384)
        bits += "0" + format(run - 16384, "014b")
        left = max(0, left - run)
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\x00")
