"""Files are whole if their pixels are, wherever their markers stand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from models.codec import decode, open_file, open_plain
from models.domain.errors import Undecodable
from models.domain.image import Pixels
from tests.pictures import as_image, drawing, encoded

EOI = b"\xff\xd9"
LIMIT = 1_000_000
KINDS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "progressive": {"progressive": True},
    "restart rows": {"restart_marker_rows": 1},
    "restart blocks": {"restart_marker_blocks": 3},
}


def pixels(data: bytes) -> Pixels:
    return as_image(decode(data, max_pixels=LIMIT).image).pixels


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
    expected = pixels(data)
    for name, ending in ENDINGS.items():
        assert np.array_equal(pixels(ending(data)), expected), name
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
            pixels(cut)
        with pytest.raises(Undecodable, match="truncated"):
            open_file(cut, max_pixels=LIMIT).describe(colour=True)
        if plain := open_plain(cut, max_pixels=LIMIT):
            with pytest.raises(Undecodable, match="truncated"):
                plain.decode_plain()


def test_a_progressive_jpeg_without_its_last_scans_is_refused() -> None:
    data = jpeg("RGB", "progressive")
    scans = [at for at in range(len(data)) if data.startswith(b"\xff\xda", at)]
    assert len(scans) > 3
    for at in scans[1:]:
        end = data.rfind(b"\xff\xc4", scans[0], at)
        with pytest.raises(Undecodable, match="truncated"):
            pixels(data[:end] + EOI)
