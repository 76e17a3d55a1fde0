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


def _replaced(data: bytes, at: int, end: int, new: bytes = b"") -> bytes:
    return data[:at] + new + data[end:]


def _inserted(data: bytes, at: int, chance: random.Random, most: int) -> bytes:
    return _replaced(data, at, at, _noise(chance, most))


def _before(data: bytes, at: int, chance: random.Random) -> bytes:
    return _replaced(data, at - chance.randint(1, 12), at)


def _run(data: bytes, chance: random.Random, pattern: bytes) -> bytes:
    """Replace a part of the data by a pattern that is repeated."""
    start, end = _scan(data)
    at = chance.randrange(start, end)
    count = min(chance.randint(4, 400), end - at) // len(pattern)
    return _replaced(data, at, at + count * len(pattern), pattern * count)


def _swapped(data: bytes, chance: random.Random) -> bytes:
    """Exchange two restart intervals; the markers stay in order."""
    start, end = _scan(data)
    cuts = [start, *_markers(data), end]
    if len(cuts) < 4:
        return _inserted(data, chance.randrange(start, end), chance, 40)
    n = chance.randrange(1, len(cuts) - 2)
    first = data[cuts[n] + 2 : cuts[n + 1]]
    second = data[cuts[n + 1] + 2 : cuts[n + 2]]
    middle = data[cuts[n] : cuts[n] + 2] + second + data[cuts[n + 1] : cuts[n + 1] + 2] + first
    return _replaced(data, cuts[n], cuts[n + 2], middle)


def _without_restarts(data: bytes, _chance: random.Random) -> bytes:
    """Remove all restart markers, although an interval is announced."""
    start, end = _scan(data)
    return _replaced(data, start, end, _RESTART.sub(b"", data[start:end]))


def _flipped(data: bytes, chance: random.Random, count: int) -> bytes:
    for _ in range(count):
        at = chance.randrange(*_scan(data))
        data = _replaced(data, at, at + 1, bytes([data[at] ^ 1 << chance.randrange(8)]))
    return data


def _removed(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(*_scan(data))
    return _replaced(data, at, min(at + chance.randint(1, 40), len(data) - 2))


def _renumbered(data: bytes, at: int, chance: random.Random) -> bytes:
    return _replaced(data, at + 1, at + 2, bytes([0xD0 + chance.randrange(8)]))


def _quantized(data: bytes, _chance: random.Random) -> bytes:
    """Write large quantization steps, so that values leave their range."""
    at = data.index(b"\xff\xdb") + 5
    return _replaced(data, at, at + 64, bytes([255]) * 64)


DAMAGES: dict[str, Damage] = {
    "insert_before_restart": lambda d, c: _inserted(d, _at(d, c, 0), c, 1500),
    "insert_few_before_restart": lambda d, c: _inserted(d, _at(d, c, 0), c, 3),
    "insert_after_restart": lambda d, c: _inserted(d, _at(d, c, 2), c, 200),
    "remove_before_restart": lambda d, c: _before(d, _at(d, c, 0), c),
    "remove_after_restart": lambda d, c: _replaced(d, at := _at(d, c, 2), at + c.randint(1, 12)),
    "drop_restart": lambda d, c: _replaced(d, at := _at(d, c, 0), at + 2),
    "repeat_restart": lambda d, c: _replaced(d, (at := _at(d, c, 0)) + 2, at),
    "renumber_restart": lambda d, c: _renumbered(d, _at(d, c, 0), c),
    "swap_intervals": _swapped,
    "drop_all_restarts": _without_restarts,
    "insert_middle": lambda d, c: _inserted(d, c.randrange(*_scan(d)), c, 40),
    "remove_middle": _removed,
    "flip_bit": lambda d, c: _flipped(d, c, 1),
    "flip_bits": lambda d, c: _flipped(d, c, 16),
    "zero_run": lambda d, c: _run(d, c, b"\0"),
    "ones_run": lambda d, c: _run(d, c, b"\xff\0"),
    "cut": lambda d, c: d[: c.randrange(*_scan(d))] + b"\xff\xd9",
    "append": lambda d, c: _inserted(d, len(d) - 2, c, 2000),
    "other_quantization": _quantized,
}
"""Kinds of damage by their names; each function takes a file and a seeded generator."""

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
        name, damage = [*DAMAGES.items()][number % len(DAMAGES)]
        photo = number // len(DAMAGES) % len(photos)
        yield f"{number}-{name}-{photo}", damage(photos[photo], random.Random(number))
