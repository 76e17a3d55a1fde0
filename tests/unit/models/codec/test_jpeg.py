"""Which JPEGs are left encoded for the engines: nothing doubtful, and described as by decoding."""

import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PillowImage
from PIL import ImageCms

from models.codec import decode, open_plain
from models.codec import encoded as left_encoded
from models.codec.jpeg import (
    MAX_SEGMENTS,
    BaselineJpeg,
    inspect,
    may_be_baseline,
)
from models.domain.errors import TooManyPixels
from models.domain.image import Jpeg, Subsampling
from tests.pictures import as_image, drawing, encoded, exif, png

APP0, APP14, COM, DHT, DQT, DRI, SOF0, SOS = 0xE0, 0xEE, 0xFE, 0xC4, 0xDB, 0xDD, 0xC0, 0xDA
EOI = b"\xff\xd9"
BY_PILLOW = {0: Subsampling.S444, 1: Subsampling.S422, 2: Subsampling.S420}
MAIN = drawing(40, 24)
JPEG = encoded(MAIN, quality=85)
RESTARTED = encoded(MAIN, quality=85, restart_marker_blocks=1)
Segments = list[tuple[int, bytes]]


def taken_apart(data: bytes) -> tuple[Segments, bytes]:
    """Return the segments up to that of the scan, and what follows it."""
    segments: Segments = []
    start = 2
    while not segments or segments[-1][0] != SOS:
        length = int.from_bytes(data[start + 2 : start + 4], "big")
        segments.append((data[start + 1], data[start + 4 : start + 2 + length]))
        start += 2 + length
    return segments, data[start:]


def put_together(segments: Segments, rest: bytes) -> bytes:
    parts = [b"\xff%c%b%b" % (m, (len(b) + 2).to_bytes(2, "big"), b) for m, b in segments]
    return b"\xff\xd8" + b"".join(parts) + rest


def edited(marker: int, edit: Callable[[bytes], bytes | None], data: bytes = JPEG) -> bytes:
    """Return `data` with the first segment of this kind changed, or without it."""
    segments, rest = taken_apart(data)
    at = [kind for kind, _ in segments].index(marker)
    body = edit(segments[at][1])
    segments[at : at + 1] = [] if body is None else [(marker, body)]
    return put_together(segments, rest)


def with_segment(marker: int, body: bytes, data: bytes = JPEG, at: int = 0) -> bytes:
    segments, rest = taken_apart(data)
    segments.insert(at, (marker, body))
    return put_together(segments, rest)


def byte(at: int, value: int) -> Callable[[bytes], bytes]:
    return lambda body: (
        body[:at] + bytes([value]) + body[at + 1 :] if at else b"%c" % value + body[1:]
    )


def pixels(data: bytes) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return np.asarray(PillowImage.open(io.BytesIO(data), formats=["JPEG"]))


def assert_sound(data: bytes, found: BaselineJpeg | None, name: str = "") -> None:
    """Check that Pillow decodes an accepted file to the same size, with or without what follows."""
    if found is not None:
        whole = pixels(data)
        assert whole.shape[:2] == (found.height, found.width), name
        assert (whole.ndim == 2) == (found.subsampling is Subsampling.GREY), name
        np.testing.assert_array_equal(whole, pixels(data[: found.length]), name)


def test_every_plain_jpeg_of_any_size_is_accepted() -> None:
    kinds: list[dict[str, Any]] = [{}, {"optimize": True}, {"restart_marker_rows": 1}]
    for options, subsampling, quality in itertools.product(kinds, [0, 1, 2], [1, 50, 100]):
        for width in range(1, 18):
            for height in range(1, 18):
                image = MAIN.crop((0, 0, width, height))
                data = encoded(image, quality=quality, subsampling=subsampling, **options)
                found = inspect(data)
                assert found is not None
                expected = BaselineJpeg(width, height, BY_PILLOW[subsampling], len(data))
                assert found._replace(restarts=False) == expected
                assert found.restarts == (re.search(rb"\xff[\xd0-\xd7]", data) is not None)


def test_grey_is_accepted() -> None:
    kinds: list[dict[str, Any]] = [{}, {"optimize": True}, {"restart_marker_blocks": 1}]
    for options in kinds:
        data = encoded(MAIN.convert("L"), **options)
        restarts = "restart_marker_blocks" in options
        assert inspect(data) == BaselineJpeg(40, 24, Subsampling.GREY, len(data), restarts=restarts)


def test_restart_markers_are_accepted_where_they_belong() -> None:
    for subsampling, blocks in itertools.product([0, 1, 2], [1, 2, 3, 7, 9, 1000]):
        image = drawing(200, 90)
        data = encoded(image, restart_marker_blocks=blocks, subsampling=subsampling)
        restarts = blocks < 1000
        assert inspect(data) == BaselineJpeg(
            200, 90, BY_PILLOW[subsampling], len(data), restarts=restarts
        )


def test_what_stands_in_segments_does_not_matter() -> None:
    segments: list[dict[str, Any]] = [
        {"comment": b"\xff\xd8\xff\xda" * 20},
        {"exif": b"Exif\0\0" + JPEG},  # as a thumbnail
        {"icc_profile": bytes(200_000)},
        {"xmp": b"\xff\xd9" * 9},
        {"dpi": (72, 72)},
    ]
    for options in segments:
        data = encoded(MAIN, quality=85, **options)
        found = inspect(data)
        assert found is not None
        assert bool(found.metadata) == (not options.keys() <= {"comment", "dpi"})
        assert found[:4] == (40, 24, Subsampling.S420, len(data))


def test_what_follows_the_image_is_not_part_of_it() -> None:
    for tail in [b"\0", EOI, b"SEFT" * 99, JPEG, b"\xff\xda" * 9, b"\xff"]:
        assert inspect(JPEG + tail) == BaselineJpeg(40, 24, Subsampling.S420, len(JPEG))


def test_of_several_images_in_a_file_the_first_is_the_one() -> None:
    data = encoded(MAIN, "MPO", save_all=True, append_images=[drawing(40, 24, seed=1)])
    found = inspect(data)
    assert found is not None
    assert found.length < len(data)
    assert_sound(data, found)


def test_other_kinds_are_left_to_the_cpu() -> None:
    for data in [
        encoded(MAIN, progressive=True),
        encoded(MAIN, keep_rgb=True),
        encoded(MAIN.convert("CMYK")),
        encoded(MAIN.convert("L"), subsampling=1),  # factors that mean nothing to a plane alone
        encoded(MAIN, streamtype=1),  # tables only
        encoded(MAIN, streamtype=2),  # no tables
        encoded(MAIN, "PNG"),
        simplejpeg.encode_jpeg(np.asarray(MAIN), colorsubsampling="440"),
        simplejpeg.encode_jpeg(np.asarray(MAIN), colorsubsampling="411"),
        b"",
    ]:
        assert inspect(data) is None


def test_a_broken_rule_is_a_no() -> None:
    for data in [
        edited(SOF0, byte(0, 12)),
        edited(SOF0, lambda body: body[:1] + bytes(2) + body[3:]),
        edited(SOF0, lambda body: body[:3] + bytes(2) + body[5:]),
        edited(SOF0, lambda body: body[:1] + b"\xff\xff" + body[3:]),
        edited(SOF0, byte(1, 40)),  # far more rows than the scan can hold
        edited(SOF0, byte(7, 0x12)),
        edited(SOF0, byte(10, 0x22)),
        edited(SOF0, byte(11, 3)),
        edited(SOF0, byte(9, 1)),
        edited(SOF0, lambda body: body[:-1]),
        edited(SOF0, lambda body: body + b"\0"),
        edited(SOF0, lambda body: body[:5]),
        edited(SOF0, lambda _body: None),
        with_segment(SOF0, dict(taken_apart(JPEG)[0])[SOF0]),
        *(with_segment(m, b"\0\0") for m in (0xC1, 0xC2, 0xC8, 0xCC, 0xD0, 0xD8, 0xDC, 0xF0, 1)),
        edited(DQT, lambda _body: None),
        edited(DQT, byte(0, 0x10)),
        edited(DQT, byte(0, 4)),
        edited(DQT, byte(9, 0)),
        edited(DQT, lambda body: body[:-1]),
        edited(DQT, lambda body: body + body),
        edited(DHT, lambda _body: None),
        edited(DHT, byte(0, 2)),
        edited(DHT, byte(0, 0x10)),
        edited(DHT, byte(1, 255)),
        edited(DHT, byte(1, 2)),
        edited(DHT, byte(17, 12)),
        edited(DHT, byte(17, 1)),
        edited(DHT, lambda body: body[:-1]),
        edited(DHT, lambda _body: b"\0" + bytes(16)),
        edited(DHT, lambda _body: b"\0\x02" + bytes(15) + b"\0\1"),  # the code of all ones
        edited(SOS, byte(1, 2)),
        edited(SOS, byte(2, 0x20)),
        edited(SOS, lambda body: b"\1" + body[1:3] + body[-3:]),
        edited(SOS, lambda body: body[:1] + body[3:5] + body[1:3] + body[5:]),
        *(edited(SOS, byte(7 + at, value)) for at, value in ((0, 1), (1, 62), (2, 0x10), (2, 1))),
        edited(APP0, byte(5, 2)),
        with_segment(DRI, b"\0"),
        with_segment(DRI, b"\0\0", with_segment(DRI, b"\0\0")),
        put_together([(COM, b"")] * MAX_SEGMENTS + taken_apart(JPEG)[0], taken_apart(JPEG)[1]),
        JPEG[:2] + b"\xff" + JPEG[2:],
        JPEG[:2] + b"\0" + JPEG[2:],
        JPEG[:2] + b"\xff\xfe\0\1" + JPEG[2:],
        JPEG[:-2] + b"\xff" + EOI,
        JPEG[:-2] + b"\xff\xd0" + EOI,
        JPEG[:-2] + b"\xff\xda" + EOI,
        put_together(taken_apart(JPEG)[0], EOI),
        put_together(taken_apart(JPEG)[0], b"\0\0" + EOI),
    ]:
        assert inspect(JPEG) is not None
        assert inspect(data) is None


def test_an_interval_of_zero_or_longer_than_the_image_is_no_interval() -> None:
    assert inspect(with_segment(DRI, b"\0\0"))
    assert inspect(with_segment(DRI, b"\0\6"))
    assert inspect(with_segment(DRI, b"\xff\xff"))


def test_a_scan_with_restart_markers_ends_with_an_eoi() -> None:
    for old, new in [(EOI, b""), (b"\xff\xdd\0\4\0\1", b""), (b"\xff\xd1", b"\xff\xfe")]:
        assert RESTARTED.count(old) == 1
        assert inspect(RESTARTED) is not None
        assert inspect(RESTARTED.replace(old, new)) is None


def test_three_components_are_accepted_where_libjpeg_takes_them_for_ycbcr() -> None:
    for jfif, adobe, ids in itertools.product(
        [False, True], [None, 0, 1, 2], [b"\1\2\3", b"\0\1\2", b"RGB"]
    ):
        data = JPEG if jfif else edited(APP0, lambda _body: None)
        for at, name in enumerate(ids):
            data = edited(SOF0, byte(6 + 3 * at, name), edited(SOS, byte(1 + 2 * at, name), data))
        if adobe is not None:
            data = with_segment(APP14, b"Adobe\0\x64\0\0\0\0%c" % adobe, data)
        accepted = inspect(data) is not None
        assert accepted == (ids != b"RGB" and adobe in (None, 1))
        if accepted:
            np.testing.assert_array_equal(pixels(data), pixels(JPEG))


def test_the_first_segments_show_that_a_jpeg_is_progressive() -> None:
    assert may_be_baseline(JPEG)
    assert not may_be_baseline(encoded(MAIN, progressive=True))
    assert not may_be_baseline(encoded(MAIN, progressive=True, exif=b"Exif\0\0" + bytes(60_000)))
    for data in [b"", b"\xff\xd8", JPEG[:30], encoded(MAIN, "PNG")]:
        assert not may_be_baseline(data), "it has no whole segments"


def test_a_file_cut_anywhere_is_a_no() -> None:
    for data in [JPEG, RESTARTED, encoded(MAIN.convert("L"), comment=b"hi")]:
        for end in range(len(data)):
            assert inspect(data[:end]) is None
            assert inspect(data[:end] + EOI) is None or end >= data.index(b"\xff\xda")


def mutations(data: bytes) -> Iterator[bytes]:
    for at in range(len(data)):
        for value in {0, 1, 0xFF, 0xD9, data[at] ^ 1, data[at] ^ 16, data[at] ^ 128} - {data[at]}:
            yield data[:at] + bytes([value]) + data[at + 1 :]


@pytest.mark.slow
def test_what_one_byte_changes_is_a_no_or_pillow_takes_it_as_well() -> None:
    for data in [JPEG, RESTARTED]:
        for mutation in mutations(data):
            assert_sound(mutation, inspect(mutation))


def test_a_changed_marker_is_a_no_unless_it_names_what_is_skipped() -> None:
    for data in [JPEG, RESTARTED]:
        segments, rest = taken_apart(data)
        for at, (kind, body) in enumerate(segments):
            for marker in set(range(256)) - {kind}:
                changed = put_together([*segments[:at], (marker, body), *segments[at + 1 :]], rest)
                skipped = kind in (APP0, COM) and marker >= APP0 and marker not in range(0xF0, COM)
                assert (inspect(changed) is not None) == (skipped and marker != 0xFF), (
                    kind,
                    marker,
                )


@given(
    st.sampled_from([JPEG, RESTARTED]),
    st.lists(st.tuples(st.integers(0, len(JPEG)), st.integers(0, 9), st.binary(max_size=9))),
)
def test_whatever_is_cut_out_and_put_in_nothing_is_raised(
    data: bytes, cuts: list[tuple[int, int, bytes]]
) -> None:
    for at, n, new in cuts:
        data = data[:at] + new + data[at + n :]
    assert_sound(data, inspect(data))


LIMIT = 10_000_000
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def test_a_baseline_jpeg_is_left_as_it_is_without_what_follows_and_described_as_by_decoding() -> (
    None
):
    for data in [
        encoded(drawing(40, 30)),
        encoded(drawing(40, 30), subsampling=0),
        encoded(drawing(40, 30, mode="L")),
        encoded(drawing(40, 30), exif=exif(x274=6, x33432="us")),
        encoded(drawing(40, 30), comment=b"hello"),
        encoded(drawing(40, 30), icc_profile=SRGB),
        encoded(drawing(40, 30), icc_profile=swapped_srgb()),
    ]:
        behind = data + b"a phone's video"
        found, decoded = left_encoded(behind, max_pixels=LIMIT), decode(data, max_pixels=LIMIT)
        assert found is not None
        assert isinstance(found.image, Jpeg)
        assert (found.info, found.copyright) == (decoded.info, decoded.copyright)
        assert found.image.data.tobytes() == data
        assert (found.image.shaper is not None) is (swapped_srgb() in data)
        assert (found.image.height, found.image.width) == as_image(decoded.image).pixels.shape[:2]


def test_what_no_engine_takes_is_left_to_decoding() -> None:
    for data in (
        png(),
        encoded(drawing(), progressive=True),
        encoded(drawing(40, 30), icc_profile=SRGB.replace(b"cprt", b"A2B0")),
        b"",
        b"nothing",
    ):
        assert left_encoded(data, max_pixels=LIMIT) is None


def swapped_srgb() -> bytes:
    """Return sRGB with red and blue exchanged: a valid profile of quite other colours."""
    profile = bytearray(SRGB)
    red, blue = profile.index(b"rXYZ"), profile.index(b"bXYZ")
    profile[red : red + 4], profile[blue : blue + 4] = b"bXYZ", b"rXYZ"
    return bytes(profile)


def test_too_many_pixels_are_refused_as_by_decoding() -> None:
    with pytest.raises(TooManyPixels):
        left_encoded(encoded(drawing(40, 30)), max_pixels=1199)


def test_restart_markers_are_a_doubt_that_libjpeg_settles() -> None:
    for name, count in (("restart_marker_blocks", 2), ("restart_marker_rows", 1)):
        options: dict[str, Any] = {name: count}
        data = encoded(drawing(80, 60), **options)
        assert left_encoded(data, max_pixels=LIMIT) is None
        assert open_plain(data, max_pixels=LIMIT) is not None  # a thread decodes it, exactly
