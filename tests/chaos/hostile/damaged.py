"""JPEGs damaged inside their entropy-coded data, the same ones at every run.

Each is a small photo that an encoder wrote, with one kind of damage by a seeded generator. Many
stay well formed as a container, so that only decoding shows that something is wrong.
"""

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.pictures import drawing, encoded

Damage = Callable[[bytes, random.Random], bytes]

_RESTART = re.compile(rb"\xff[\xd0-\xd7]")


def _scan(data: bytes) -> tuple[int, int]:
    """Return where the entropy-coded data start and end."""
    at = data.index(b"\xff\xda")
    return at + 2 + int.from_bytes(data[at + 2 : at + 4], "big"), len(data) - 2


def _markers(data: bytes) -> list[int]:
    """Return the places of the restart markers."""
    start, end = _scan(data)
    return [match.start() for match in _RESTART.finditer(data, start, end)]


def _noise(chance: random.Random, most: int) -> bytes:
    """Return random bytes without a marker."""
    return bytes(chance.randrange(255) for _ in range(chance.randint(1, most)))


def _at(data: bytes, chance: random.Random, shift: int) -> int:
    """Return a place beside a restart marker, or anywhere where there is none."""
    found = _markers(data)
    start, end = _scan(data)
    return chance.choice(found) + shift if found else chance.randrange(start, end)


def insert_before_restart(data: bytes, chance: random.Random) -> bytes:
    """Insert bytes that no block needs before a restart marker."""
    at = _at(data, chance, 0)
    return data[:at] + _noise(chance, 1500) + data[at:]


def insert_few_before_restart(data: bytes, chance: random.Random) -> bytes:
    """Insert one to three bytes that no block needs before a restart marker."""
    at = _at(data, chance, 0)
    return data[:at] + _noise(chance, 3) + data[at:]


def insert_after_restart(data: bytes, chance: random.Random) -> bytes:
    """Insert bytes behind a restart marker."""
    at = _at(data, chance, 2)
    return data[:at] + _noise(chance, 200) + data[at:]


def remove_before_restart(data: bytes, chance: random.Random) -> bytes:
    """Remove the last bytes of a restart interval."""
    at = _at(data, chance, 0)
    return data[: at - chance.randint(1, 12)] + data[at:]


def remove_after_restart(data: bytes, chance: random.Random) -> bytes:
    """Remove the first bytes of a restart interval."""
    at = _at(data, chance, 2)
    return data[:at] + data[at + chance.randint(1, 12) :]


def drop_restart(data: bytes, chance: random.Random) -> bytes:
    """Remove a restart marker."""
    at = _at(data, chance, 0)
    return data[:at] + data[at + 2 :]


def repeat_restart(data: bytes, chance: random.Random) -> bytes:
    """Write a restart marker twice."""
    at = _at(data, chance, 0)
    return data[: at + 2] + data[at:]


def renumber_restart(data: bytes, chance: random.Random) -> bytes:
    """Give a restart marker another number."""
    at = _at(data, chance, 0)
    return data[: at + 1] + bytes([0xD0 + chance.randrange(8)]) + data[at + 2 :]


def swap_intervals(data: bytes, chance: random.Random) -> bytes:
    """Exchange two restart intervals; the markers stay in order."""
    start, end = _scan(data)
    cuts = [start, *_markers(data), end]
    if len(cuts) < 4:
        return insert_middle(data, chance)
    n = chance.randrange(1, len(cuts) - 2)
    first = data[cuts[n] + 2 : cuts[n + 1]]
    second = data[cuts[n + 1] + 2 : cuts[n + 2]]
    middle = data[cuts[n] : cuts[n] + 2] + second + data[cuts[n + 1] : cuts[n + 1] + 2] + first
    return data[: cuts[n]] + middle + data[cuts[n + 2] :]


def drop_all_restarts(data: bytes, _chance: random.Random) -> bytes:
    """Remove all restart markers, although an interval is announced."""
    start, end = _scan(data)
    return data[:start] + _RESTART.sub(b"", data[start:end]) + data[end:]


def insert_middle(data: bytes, chance: random.Random) -> bytes:
    """Insert bytes in the middle of the data."""
    at = chance.randrange(*_scan(data))
    return data[:at] + _noise(chance, 40) + data[at:]


def remove_middle(data: bytes, chance: random.Random) -> bytes:
    """Remove bytes in the middle of the data."""
    at = chance.randrange(*_scan(data))
    return data[:at] + data[min(at + chance.randint(1, 40), len(data) - 2) :]


def flip_bit(data: bytes, chance: random.Random) -> bytes:
    """Invert one bit."""
    at = chance.randrange(*_scan(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def flip_bits(data: bytes, chance: random.Random) -> bytes:
    """Invert sixteen bits."""
    for _ in range(16):
        data = flip_bit(data, chance)
    return data


def zero_run(data: bytes, chance: random.Random) -> bytes:
    """Replace a part of the data by zeros."""
    start, end = _scan(data)
    at = chance.randrange(start, end)
    size = min(chance.randint(4, 400), end - at)
    return data[:at] + bytes(size) + data[at + size :]


def ones_run(data: bytes, chance: random.Random) -> bytes:
    """Replace a part of the data by ones, each byte stuffed."""
    start, end = _scan(data)
    at = chance.randrange(start, end)
    size = min(chance.randint(4, 400), end - at) // 2 * 2
    return data[:at] + b"\xff\x00" * (size // 2) + data[at + size :]


def cut(data: bytes, chance: random.Random) -> bytes:
    """End the data early, with a proper end of the image behind them."""
    return data[: chance.randrange(*_scan(data))] + b"\xff\xd9"


def append(data: bytes, chance: random.Random) -> bytes:
    """Continue the data behind the last block."""
    return data[:-2] + _noise(chance, 2000) + data[-2:]


def other_quantization(data: bytes, _chance: random.Random) -> bytes:
    """Write large quantization steps, so that values leave their range."""
    at = data.index(b"\xff\xdb") + 5
    return data[:at] + bytes([255]) * 64 + data[at + 64 :]


DAMAGES: tuple[Damage, ...] = (
    insert_before_restart,
    insert_few_before_restart,
    insert_after_restart,
    remove_before_restart,
    remove_after_restart,
    drop_restart,
    repeat_restart,
    renumber_restart,
    swap_intervals,
    drop_all_restarts,
    insert_middle,
    remove_middle,
    flip_bit,
    flip_bits,
    zero_run,
    ones_run,
    cut,
    append,
    other_quantization,
)

_OPTIONS: tuple[dict[str, Any], ...] = (
    {"subsampling": 0},
    {"subsampling": 1},
    {"subsampling": 2},
    {"subsampling": 2, "optimize": True},
    {"subsampling": 0, "restart_marker_blocks": 7},
    {"subsampling": 1, "restart_marker_rows": 1},
    {"subsampling": 2, "restart_marker_rows": 1},
    {"subsampling": 2, "restart_marker_blocks": 1},
)


def files(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield `count` damaged files, each with a name that states what was done to which photo."""
    photos = []
    for number, options in enumerate(_OPTIONS):
        size = (160 + 24 * number, 120 + 8 * number)
        photos.append(encoded(drawing(*size, number), quality=88, **options))
        photos.append(encoded(drawing(*size, number, "L"), quality=88, **options))
    for number in range(count):
        damage = DAMAGES[number % len(DAMAGES)]
        photo = number // len(DAMAGES) % len(photos)
        yield f"{number}-{damage.__name__}-{photo}", damage(photos[photo], random.Random(number))
