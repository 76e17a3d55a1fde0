"""TIFFs of depths, photometric kinds and colour maps that Pillow does not read rightly."""

import itertools
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models.codec import open_file
from models.domain.errors import Undecodable
from models.domain.image import Pixels
from tests.pictures import as_image, drawing, encoded

WIDTH, HEIGHT, TILE = 37, 21, 16
LIMIT = 10_000_000
Entries = dict[int, list[int]]


def packed(samples: NDArray[Any], bits: int, order: str) -> bytes:
    """Return rows of samples as bytes; each row begins at a whole byte."""
    rows = samples.reshape(len(samples), -1)
    if bits in (8, 16, 32):
        return rows.astype(f"{order}u{bits // 8}").tobytes()
    places = np.arange(bits - 1, -1, -1)
    set_bits = (rows[..., np.newaxis] >> places & 1).astype(np.uint8)
    return np.packbits(set_bits.reshape(len(rows), -1), axis=1).tobytes()


def differences(samples: NDArray[Any]) -> NDArray[Any]:
    return np.diff(samples, axis=1, prepend=np.zeros_like(samples[:, :1]))


def tiff(
    samples: NDArray[Any],
    bits: int,
    photometric: int,
    *,
    order: str = "<",
    wide: bool = False,
    tiled: bool = False,
    compressed: bool = False,
    predictor: bool = False,
    extra: list[int] | None = None,
    more: Entries | None = None,
) -> bytes:
    """Return a TIFF with strips of eight rows, or tiles."""
    height, width, n = samples.shape
    if tiled:
        pad = ((0, -height % TILE), (0, -width % TILE), (0, 0))
        whole = np.pad(samples, pad, mode="edge")
        tops, lefts = range(0, len(whole), TILE), range(0, whole.shape[1], TILE)
        parts = [whole[top : top + TILE, left : left + TILE] for top in tops for left in lefts]
    else:
        parts = [samples[top : top + 8] for top in range(0, height, 8)]
    chunks = [packed(differences(part) if predictor else part, bits, order) for part in parts]
    if compressed:
        chunks = [zlib.compress(chunk) for chunk in chunks]
    start = 16
    offsets = list(np.cumsum([start, *map(len, chunks)])[:-1])
    entries: Entries = {
        **{256: [width], 257: [height], 258: [bits] * n, 259: [8 if compressed else 1]},
        **{262: [photometric], 277: [n], 284: [1], 317: [2 if predictor else 1], 339: [1] * n},
        **({338: extra} if extra else {}),
        **({322: [TILE], 323: [TILE], 324: offsets, 325: [len(chunk) for chunk in chunks]}
           if tiled else {273: offsets, 278: [8], 279: [len(chunk) for chunk in chunks]}),
        **(more or {}),
    }  # fmt: skip
    body = b"".join(chunks)
    return _file(order, wide, body + b"\0" * (-len(body) % 8), entries)


def _file(order: str, wide: bool, body: bytes, entries: Entries) -> bytes:
    size, long = (8, "Q") if wide else (4, "I")
    at = 16 + len(body)
    count = struct.pack(order + ("Q" if wide else "H"), len(entries))
    behind = at + len(count) + (12 if size == 4 else 20) * len(entries) + size
    made, values = count, b""
    for tag, numbers in sorted(entries.items()):
        kind = "I" if max(numbers) > 65535 else "H"
        content = struct.pack(f"{order}{len(numbers)}{kind}", *numbers)
        made += struct.pack(f"{order}HH{long}", tag, 4 if kind == "I" else 3, len(numbers))
        if len(content) <= size:
            made += content.ljust(size, b"\0")
        else:
            made += struct.pack(order + long, behind + len(values))
            values += content + b"\0" * (-len(content) % 8)
    mark = b"II" if order == "<" else b"MM"
    head = mark + struct.pack(order + "H", 43 if wide else 42)
    head += struct.pack(order + "HHQ", 8, 0, at) if wide else struct.pack(order + "I", at)
    return head.ljust(16, b"\0") + body + made + bytes(size) + values


def pixels(data: bytes) -> Pixels:
    opened = open_file(data, max_pixels=LIMIT)
    found = opened.decode()
    assert opened.info == found.info
    assert opened.describe(colour=True).colour
    return as_image(found.image).pixels


def scaled(values: NDArray[Any], bits: int) -> Pixels:
    most = 65535 if bits == 32 else (1 << bits) - 1
    exact = np.minimum(values.astype(np.float64), most) * 255 / most
    return np.floor(exact + 0.5).astype(np.uint8)


STORED: dict[str, dict[str, Any]] = {
    "strips": {},
    "tiles": {"tiled": True},
    "compressed strips": {"compressed": True},
    "compressed tiles": {"compressed": True, "tiled": True},
    "BigTIFF": {"wide": True},
}
"""Ways to store samples. Pillow reads no BigTIFF of big-endian numbers."""

ORDERED = [
    (stored, order) for stored in STORED for order in "<>" if (stored, order) != ("BigTIFF", ">")
]


def values(bits: int, channels: int) -> NDArray[np.uint32]:
    random = np.random.default_rng(bits * 10 + channels)
    made = random.integers(0, 1 << min(bits, 17), (HEIGHT, WIDTH, channels)).astype(np.uint32)
    made[0, :4, 0] = (0, 1, (1 << bits) - 1, 1 << bits - 1)
    return made


def test_grey_of_every_depth_is_scaled_to_the_full_range() -> None:
    for bits, (stored, order) in itertools.product([8, 12, 16, 32], ORDERED):
        grey = values(bits, 1)
        expected = scaled(grey, bits)
        for photometric in (0, 1):
            found = pixels(tiff(grey, bits, photometric, order=order, **STORED[stored]))
            wanted = expected if photometric else 255 - expected
            assert found.shape == wanted.shape
            assert np.abs(found.astype(int) - wanted).max() <= 1


def test_grey_with_alpha() -> None:
    for stored, order in ORDERED:
        data = values(8, 2).astype(np.uint8)
        for photometric in (0, 1):
            options: dict[str, Any] = {"order": order, **STORED[stored]}
            grey = data[..., :1] if photometric else 255 - data[..., :1]
            found = pixels(tiff(data, 8, photometric, extra=[2], **options))
            assert np.array_equal(found[..., :3], np.repeat(grey, 3, axis=2))
            assert np.array_equal(found[..., 3:], data[..., 1:])
            plain = pixels(tiff(data, 8, photometric, extra=[0], **options))
            assert np.array_equal(plain, grey)


@pytest.mark.parametrize(
    ("channels", "photometric", "depths"),
    [
        (1, 0, (3, 5, 10, 14)),
        (1, 1, (6, 7, 9, 11, 13, 15)),
        (2, 1, (4, 12, 16)),
        (3, 2, (2, 4, 10, 12, 32)),
        (4, 2, (12, 32)),
    ],
)
def test_other_depths_are_refused_with_those_that_are_read(
    channels: int, photometric: int, depths: tuple[int, ...]
) -> None:
    for bits in depths:
        expected = (
            f"the TIFF has {bits} bits a sample; grey is read of 1, 2, 4, 8, 12, 16 or 32 bits, "
            "grey with alpha of 8, and colours of 8 or 16; save it with 8 bits a sample"
        )
        extra = [2] if channels in (2, 4) else None
        with pytest.raises(Undecodable, match=f"^{expected}$"):
            pixels(tiff(values(bits, channels), bits, photometric, extra=extra))


def test_differences_are_added_up() -> None:
    for bits, tiled, order in itertools.product([16, 32], [False, True], "<>"):
        grey = values(bits, 1).astype(f"u{bits // 8}")
        data = tiff(grey, bits, 0, order=order, tiled=tiled, compressed=True, predictor=True)
        assert np.abs(pixels(data).astype(int) - (255 - scaled(grey, bits))).max() <= 1


def test_pixels_of_12_bits_are_turned_upright() -> None:
    for orientation in range(1, 9):
        grey = values(12, 1)
        plain = values(8, 1)
        ours = pixels(tiff(grey, 12, 1, more={274: [orientation]}))
        order = pixels(tiff(plain, 8, 1, more={274: [orientation]}))
        assert ours.shape == order.shape
        corners = scaled(grey, 12)[[0, 0, -1, -1], [0, -1, 0, -1], 0]
        turned = {1: (0, 1, 2, 3), 2: (1, 0, 3, 2), 3: (3, 2, 1, 0), 4: (2, 3, 0, 1),
                  5: (0, 2, 1, 3), 6: (2, 0, 3, 1), 7: (3, 1, 2, 0), 8: (1, 3, 0, 2)}  # fmt: skip
        found = ours[[0, 0, -1, -1], [0, -1, 0, -1], 0]
        assert found.tolist() == corners[list(turned[orientation])].tolist()


def test_colour_maps_of_8_bits() -> None:
    for compressed, order in itertools.product([False, True], "<>"):
        indexes = np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH, 1) % 256
        levels = np.random.default_rng(0).integers(0, 256, (3, 256))
        for scale in (1, 257):
            more = {320: (levels * scale).reshape(-1).tolist()}
            data = tiff(indexes, 8, 3, order=order, compressed=compressed, more=more)
            assert np.array_equal(pixels(data), levels.T[indexes[..., 0]])


def test_colours_in_planes() -> None:
    for bits, order in itertools.product([8, 16], "<>"):
        planes = np.random.default_rng(0).integers(0, 1 << bits, (3, 8, WIDTH, 1))
        more = {257: [8], 258: [bits] * 3, 277: [3], 284: [2]}
        found = pixels(tiff(planes.reshape(24, WIDTH, 1), bits, 2, order=order, more=more))
        assert np.array_equal(found, np.moveaxis(planes[..., 0], 0, 2) >> bits - 8)
        for cut in (8, 16):
            with pytest.raises(Undecodable):
                pixels(tiff(planes.reshape(24, WIDTH, 1)[:cut], bits, 2, order=order, more=more))


def test_reversed_bits_are_read_of_some_grey_and_refused_of_others() -> None:
    for bits in (8, 16):
        stored = values(bits, 1)
        in_bytes = stored.astype(f"<u{bits // 8}").view(np.uint8)
        turned = np.packbits(np.unpackbits(in_bytes), bitorder="little").view(f"<u{bits // 8}")
        found = pixels(tiff(turned.reshape(stored.shape), bits, 1, more={266: [2]}))
        assert np.array_equal(found, scaled(stored, bits))
    for bits, channels in [(8, 3), (16, 3), (12, 1), (32, 1)]:
        with pytest.raises(Undecodable, match=r"FillOrder 2.* save it with FillOrder 1"):
            pixels(tiff(values(bits, channels), bits, channels // 2 + 1, more={266: [2]}))


def test_grey_and_alpha_in_two_planes_are_refused() -> None:
    for compressed in [False, True]:
        more = {257: [8], 258: [8, 8], 277: [2], 284: [2]}
        with pytest.raises(Undecodable, match="grey and alpha in two planes"):
            pixels(tiff(values(8, 1)[:16], 8, 1, extra=[2], more=more, compressed=compressed))


def test_one_plane_of_grey() -> None:
    for (stored, order), bits in itertools.product(ORDERED, [1, 8, 16, 32]):
        for photometric in (0, 1):
            options: dict[str, Any] = {"order": order, **STORED[stored]}
            data = (values(bits, 1) & (1 << bits) - 1, bits, photometric)
            expected = pixels(tiff(*data, **options))
            assert np.array_equal(pixels(tiff(*data, **options, more={284: [2]})), expected)


def test_floats() -> None:
    for planar, (stored, order) in itertools.product([1, 2], ORDERED):
        levels = np.linspace(0, 1, WIDTH, dtype=np.float32).reshape(1, WIDTH, 1)
        more = {339: [3], 284: [planar]}
        for photometric, expected in enumerate((1 - levels, levels)):
            options: dict[str, Any] = {"order": order, **STORED[stored]}
            found = pixels(tiff(levels.view(np.uint32), 32, photometric, more=more, **options))
            assert np.abs(found - expected * 255).max() <= 1


def test_signed_samples() -> None:
    for bits, (stored, order) in itertools.product([16, 32], ORDERED):
        data = (values(bits, 1) >> 1, bits, 1)
        plain = pixels(tiff(*data, more={339: [2]}))
        assert np.array_equal(
            pixels(tiff(*data, order=order, more={339: [2]}, **STORED[stored])), plain
        )


def test_a_file_without_its_last_strip_is_refused() -> None:
    for bits, compressed in itertools.product([8, 12], [False, True]):
        more = {257: [HEIGHT + 8]}
        with pytest.raises(Undecodable):
            pixels(tiff(values(bits, 1), bits, 1, compressed=compressed, more=more))


def test_a_cut_jpeg_in_a_strip_is_refused() -> None:
    for mode in ["L", "RGB"]:
        data = encoded(drawing(mode=mode), "TIFF", compression="jpeg")
        assert pixels(data).any()
        scan = data.rindex(b"\xff\xda") + 100
        with pytest.raises(Undecodable, match="truncated"):
            pixels(data[:scan] + b"\xff\xd9" + data[scan + 2 :])
