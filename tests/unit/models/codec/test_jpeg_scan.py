"""The end of a scan is found in blocks, in little memory, up to the first marker out of order."""

import tracemalloc
from itertools import cycle, islice

import pytest

from models.codec import jpeg
from models.codec.jpeg import scan_end

EOI = b"\xff\xd9"
MANY = 1 << 20


def restarts(count: int, data: bytes = b"\1", first: int = 0) -> bytes:
    """Return intervals of `data`, each with its restart marker behind it."""
    markers = islice(cycle(range(8)), first, first + count)
    return b"".join(data + bytes((0xFF, 0xD0 + number)) for number in markers)


@pytest.mark.parametrize("block", [1 << 18, 64, 7, 3, 2, 1])
def test_intervals_are_counted_across_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jpeg, "_BLOCK", block)
    whole = restarts(20, b"\1\xff\0\2") + b"\1\2"
    for mcus in (41, 42):
        assert scan_end(whole + EOI + b"more", 0, 2, mcus, 8) == len(whole) + 2
    for mcus, bits in ((40, 8), (43, 8), (42, 17), (42, 9)):
        assert scan_end(whole + EOI, 0, 2, mcus, bits) is None
    assert scan_end(whole, 0, 2, 42, 8) is None
    assert scan_end(whole + b"\xff", 0, 2, 42, 8) is None
    assert scan_end(restarts(19) + restarts(1, first=4) + b"\1" + EOI, 0, 2, 42, 4) is None
    assert scan_end(restarts(19) + EOI + restarts(1, first=3) + EOI, 0, 2, 42, 4) is None


@pytest.mark.parametrize(
    ("data", "mcus"),
    [
        (b"\xff\0" * (4 * MANY) + EOI, 60_000_000),
        (restarts(4 * MANY, b"") + EOI, 60_000_000),
        (restarts(2 * MANY) + b"\1" + EOI, 2 * MANY + 1),
    ],
    ids=["stuffed", "markers", "intervals"],
)
def test_no_scan_takes_much_memory(data: bytes, mcus: int) -> None:
    tracemalloc.start()
    try:
        scan_end(data, 0, 1, mcus, 2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
