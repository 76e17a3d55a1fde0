"""Mutate image files so that many still reach deep into their decoders.

Blind changes mostly die at the first checksum or length; half of the inputs are repaired after it:
chunks of PNGs get their checksums, and pixels of PNGs are changed before they are deflated.
"""

import random
import struct
import zlib
from collections.abc import Callable, Sequence

INTERESTING = (0, 1, 2, 7, 8, 15, 16, 127, 128, 255, 256, 257, 4095, 4096, 32767, 32768, 65535,
               65536, 1 << 20, (1 << 24) - 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)  # fmt: skip

MAX_GROWTH = 1 << 16
"""Bytes that one input may be larger than its seed."""


def mutated(seeds: Sequence[bytes], random_: random.Random) -> bytes:
    """Return a seed with one to eight changes."""
    data = bytearray(random_.choice(seeds))
    most = len(data) + MAX_GROWTH
    for _ in range(random_.choice((1, 1, 1, 2, 3, 5, 8))):
        random_.choice(_CHANGES)(data, random_, seeds)
        del data[most:]
    if data.startswith(b"\x89PNG") and random_.random() < 0.7:
        return repaired_png(bytes(data))
    return bytes(data)


def repaired_png(data: bytes) -> bytes:
    """Return the chunks of a PNG with right checksums, as far as its lengths can be followed."""
    made, at = bytearray(data[:8]), 8
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if length > len(data) - at - 12:
            break
        body = data[at + 4 : at + 8 + length]
        made += data[at : at + 4] + body + struct.pack(">I", zlib.crc32(body))
        at += length + 12
    return bytes(made) + data[at:]


def _place(data: bytearray, random_: random.Random) -> int:
    """Return a random place, in the headers more often than in the pixels."""
    end = min(len(data), 700) if random_.random() < 0.6 else len(data)
    return random_.randrange(max(1, end))


def _bit(data: bytearray, random_: random.Random, _seeds: Sequence[bytes]) -> None:
    if data:
        data[_place(data, random_)] ^= 1 << random_.randrange(8)


def _byte(data: bytearray, random_: random.Random, _seeds: Sequence[bytes]) -> None:
    if data:
        data[_place(data, random_)] = random_.choice(
            (0, 1, 127, 128, 254, 255, random_.randrange(256))
        )


def _number(data: bytearray, random_: random.Random, _seeds: Sequence[bytes]) -> None:
    size = random_.choice((2, 3, 4, 8))
    at = _place(data, random_)
    value = random_.choice(INTERESTING) + random_.choice((-1, 0, 0, 0, 1))
    value = (value if random_.random() < 0.8 else -value) % (1 << 8 * size)
    data[at : at + size] = value.to_bytes(size, random_.choice(("big", "little")))


def _removed(data: bytearray, random_: random.Random, _seeds: Sequence[bytes]) -> None:
    at = _place(data, random_)
    del data[at : at + random_.choice((1, 2, 4, 16, 100, 1000))]


def _repeated(data: bytearray, random_: random.Random, _seeds: Sequence[bytes]) -> None:
    at, size = _place(data, random_), random_.choice((1, 2, 4, 12, 64, 500))
    data[at:at] = data[at : at + size] * random_.choice((1, 2, 10, 100))


def _inserted(data: bytearray, random_: random.Random, _seeds: Sequence[bytes]) -> None:
    at = _place(data, random_)
    data[at:at] = random_.randbytes(random_.choice((1, 2, 4, 16, 256)))


def _noise(data: bytearray, random_: random.Random, _seeds: Sequence[bytes]) -> None:
    at, size = _place(data, random_), random_.choice((2, 8, 64))
    data[at : at + size] = random_.randbytes(size)


def _cut(data: bytearray, random_: random.Random, _seeds: Sequence[bytes]) -> None:
    del data[random_.randrange(len(data) + 1) :]


def _spliced(data: bytearray, random_: random.Random, seeds: Sequence[bytes]) -> None:
    """Return the start of this file and the end of another one of the same kind, or of any."""
    alike = [each for each in seeds if each[:4] == data[:4]]
    other = random_.choice(alike if alike and random_.random() < 0.8 else seeds)
    at = random_.randrange(len(data) + 1)
    data[at:] = other[random_.randrange(len(other) + 1) :]


def _moved(data: bytearray, random_: random.Random, _seeds: Sequence[bytes]) -> None:
    at, to, size = _place(data, random_), _place(data, random_), random_.choice((4, 12, 40, 200))
    piece = data[at : at + size]
    del data[at : at + size]
    data[to:to] = piece


def _deflated(data: bytearray, random_: random.Random, _seeds: Sequence[bytes]) -> None:
    """Change the content of the first zlib stream that is found."""
    at = data.find(b"IDAT") + 4
    if at < 8 or at > len(data) - 8:
        return
    (length,) = struct.unpack_from(">I", data, at - 8)
    try:
        rows = bytearray(zlib.decompressobj().decompress(data[at : at + length], 1 << 18))
    except zlib.error:
        return
    for _ in range(4):
        if rows:
            rows[random_.randrange(len(rows))] = random_.randrange(256)
    if random_.random() < 0.3:
        del rows[random_.randrange(len(rows) + 1) :]
    packed = zlib.compress(bytes(rows), 1)
    data[at - 8 : at - 4] = struct.pack(">I", len(packed))
    data[at : at + length] = packed


_Change = Callable[[bytearray, random.Random, Sequence[bytes]], None]
_CHANGES: tuple[_Change, ...] = (
    *(_bit, _bit, _byte, _byte, _byte, _number, _number, _number, _number),
    *(_removed, _repeated, _inserted, _noise, _cut, _spliced, _moved, _deflated),
)
