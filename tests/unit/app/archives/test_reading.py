"""Archives of untrusted clients: their files in order, and a clear error for all else."""

import bz2
import functools
import gzip
import io
import lzma
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from app.archives.reading import (
    LONGEST_NAME,
    XZ_MEMORY_OF_REQUESTS,
    ArchiveLimits,
    open_archive,
    safe_name,
    unpacked,
)
from models.domain.errors import BadArchive, TooLarge
from tests.chaos.hostile.archives import pax, tar_header, tar_of, wide, wide_end
from tests.memory import traced

LIMIT = 1 << 20
FILES = {"a.jpg": b"first" * 500, "folder/b.png": bytes(range(256)), "c.gif": b""}
LONG = "folder/" * 30 + "ä.jpg"
COMPRESSIONS: list[Callable[[bytes], bytes]] = [
    functools.partial(gzip.compress, mtime=0),
    bz2.compress,
    lzma.compress,
]
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
compressed = pytest.mark.parametrize("pack", COMPRESSIONS, ids=["gzip", "bzip2", "xz"])


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a ZIP of files by their names."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return sink.getvalue()


def tarred(files: Iterable[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a TAR of files with their names."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=form) as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def gnu(files: dict[str, bytes]) -> bytes:
    return tarred(files.items(), tarfile.GNU_FORMAT)


def contents(data: bytes) -> list[tuple[str, bytes]]:
    """Return names and contents in the order of the archive."""
    with open_archive(io.BytesIO(data)) as archive:
        return [(each.name, archive.read(each, LIMIT)) for each in archive.members()]


ALL = {**FILES, LONG: b"long"}


@pytest.mark.parametrize(
    "data",
    [
        *(zipped(ALL, method) for method in METHODS),
        *(tarred(ALL.items(), form) for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)),
        *(pack(gnu(ALL)) for pack in COMPRESSIONS),
    ],
    ids=["stored", "deflate", "pax", "gnu", "tar.gz", "tar.bz2", "tar.xz"],
)
def test_members_are_read_in_their_order_with_long_names(data: bytes) -> None:
    assert contents(data) == [*ALL.items()]


@pytest.mark.parametrize("data", [zipped(FILES), gnu(FILES)], ids=["zip", "tar"])
def test_members_are_read_in_any_order_and_again(data: bytes) -> None:
    with open_archive(io.BytesIO(data)) as archive:
        members, files = list(archive.members()), [*FILES.items()]
        for each in reversed(members):
            assert (each.name, archive.read(each, LIMIT)) == files[each.index]
        assert list(archive.members()) == members
        assert archive.find("folder/b.png") == members[1]
        assert archive.find("missing") is None


@pytest.mark.parametrize("data", [zipped(FILES), gnu(FILES)], ids=["zip", "tar"])
def test_a_member_over_the_limit_is_refused_alone(data: bytes) -> None:
    with open_archive(io.BytesIO(data)) as archive:
        first, second, _ = archive.members()
        with pytest.raises(TooLarge, match="the image has 2500 bytes; one has at most 256"):
            archive.read(first, 256)
        assert archive.read(second, 256) == FILES["folder/b.png"]


def test_folders_links_devices_and_hidden_files_of_a_tar_are_left_out() -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE):
            info = tarfile.TarInfo("other")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    others = sink.getvalue()[: 4 * 512]
    data = others + tarred([(".hidden.jpg", b"1"), ("../../etc/a.jpg", b"1")])
    assert contents(data) == [("etc/a.jpg", b"1")]


def test_folders_links_and_hidden_files_of_a_zip_are_left_out() -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.mkdir("folder")
        link = zipfile.ZipInfo("link.jpg")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        for name in ("__MACOSX/._a.jpg", ".hidden.jpg", "x/.git/a.jpg", "a.jpg"):
            archive.writestr(name, b"1")
    assert contents(sink.getvalue()) == [("a.jpg", b"1")]


def test_names_of_a_zip_without_a_flag_are_utf8_if_they_can_be_else_code_page_437() -> None:
    data = zipped({"aaaa.jpg": b"1", "bbb.jpg": b"2", "cc": b"3", "cd": b"4"})
    data = data.replace(b"aaaa", "äö".encode()).replace(b"bbb", b"b\x84b").replace(b"cd", b"cc")
    assert contents(data) == [("äö.jpg", b"1"), ("bäb.jpg", b"2"), ("cc", b"3"), ("cc", b"4")]


@pytest.mark.parametrize("method", METHODS)
def test_a_damaged_member_of_a_zip_harms_no_other(method: int) -> None:
    data = zipped({"a.jpg": bytes(range(256)) * 9, "b.jpg": b"good"}, method)
    at = data.index(b"a.jpg") + 20
    check_first(data[:at] + bytes(8) + data[at + 8 :], r"'a\.jpg' is damaged in the ZIP")


@pytest.mark.parametrize(
    ("offset", "form", "value", "text"),
    [
        (8, "B", 1, "is encrypted; send it without a password"),
        (10, "B", 12, r"packed by method 12; stored \(0\) and deflate \(8\) are read"),
        (24, "<L", 3, "is damaged"),
    ],
    ids=["encrypted", "bzip2", "smaller"],
)
def test_a_member_that_cannot_be_read_says_why(
    offset: int, form: str, value: int, text: str
) -> None:
    data = bytearray(zipped({"a": b"12345" * 100, "b": b"good"}))
    struct.pack_into(form, data, data.index(b"PK\x01\x02") + offset, value)
    check_first(bytes(data), text)


def test_a_member_of_a_zip_unpacks_to_no_more_than_it_claims() -> None:
    data = bytearray(zipped({"a": bytes(64 << 20), "b": b"good"}))
    struct.pack_into("<L", data, data.index(b"PK\x01\x02") + 24, 1000)
    with traced() as peak:
        check_first(bytes(data), "is damaged")
        assert peak() < 4 << 20


def check_first(data: bytes, text: str) -> None:
    """Check that the first of two members has an error with this text, and the second none."""
    with open_archive(io.BytesIO(data)) as archive:
        first, second = archive.members()
        with pytest.raises(BadArchive, match=text):
            archive.read(first, LIMIT)
        assert archive.read(second, LIMIT) == b"good"


def test_members_of_a_tar_before_a_damaged_header_are_read_and_the_error_says_where() -> None:
    data = bytearray(gnu(FILES))
    data[600:700] = bytes(100)  # content, which has no checksum
    second = 512 + 2560
    data[second : second + 100] = bytes(100)
    with open_archive(io.BytesIO(data)) as archive:
        members = archive.members()
        assert len(archive.read(next(members), LIMIT)) == 2500
        with pytest.raises(BadArchive, match=f"the TAR is damaged at byte {second}"):
            next(members)


def test_a_member_of_a_tar_that_is_cut_off_is_its_own_error() -> None:
    with open_archive(io.BytesIO(gnu(FILES)[:1500])) as archive:
        (member,) = archive.members()
        with pytest.raises(BadArchive, match="cut off: the TAR ends before it does"):
            archive.read(member, LIMIT)


@pytest.mark.slow
@compressed
def test_a_cut_compressed_archive_is_never_taken_for_a_whole_one(
    pack: Callable[[bytes], bytes],
) -> None:
    noise = random.Random(1).randbytes(3_000_000)
    data = pack(tarred([("a.jpg", b"1"), ("b.jpg", noise), ("c.jpg", b"3")]))
    with (
        open_archive(io.BytesIO(data[: len(data) // 2])) as archive,
        pytest.raises(BadArchive, match="the compressed TAR is damaged after"),
    ):
        list(archive.members())


def extension(size: int) -> bytes:
    """Return an extended header that states this size."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, size
    return header.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (extension(8 << 30), "extended header of 8589934592 bytes"),
        (tar_header(b"a.jpg", b"\x80" + b"\xff" * 11) + bytes(1024), "damaged at byte 0"),
        (b"\xff\xd8\xff\xe0" * 1000, "neither a ZIP nor a TAR"),
        (gzip.compress(b"\xff\xd8\xff\xe0" * 1000, mtime=0), "neither a ZIP nor a TAR"),
        (b"", "it has no bytes"),
        *((zipped(FILES)[:n], "the ZIP is damaged or incomplete") for n in (200, -30, -1)),
    ],
    ids=["endless", "no_size", "jpeg", "jpeg.gz", "empty", "zip_200", "zip-30", "zip-1"],
)
def test_what_is_no_archive_is_refused_with_a_clear_text(data: bytes, text: str) -> None:
    with pytest.raises(BadArchive, match=text), open_archive(io.BytesIO(data)) as archive:
        list(archive.members())


def understated() -> bytes:
    """Return a ZIP of 20 members that states 1."""
    data = bytearray(zipped({str(n): b"" for n in range(20)}))
    struct.pack_into("<2H", data, len(data) - 14, 1, 1)
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04"
        + bytes(11_000)
        + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 11_000, 4, 0),
        understated(),
        tarred((f"{n}.jpg", b"") for n in range(11)),
        extension(0) * 100,
    ],
    ids=["large_directory", "understated", "tar", "headers_without_members"],
)
def test_more_entries_than_allowed_are_refused(
    monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(zipfile, "ZipInfo", None)  # a directory is refused before it is read
    with (
        pytest.raises(BadArchive, match="more than 10 entries; send several"),
        open_archive(io.BytesIO(data), ArchiveLimits(members=10)) as archive,
    ):
        list(archive.members())


@compressed
def test_a_bomb_is_refused_before_it_is_unpacked(pack: Callable[[bytes], bytes]) -> None:
    data = pack(tarred([("a.jpg", bytes(8 << 20)), ("b.jpg", b"1")]))
    with open_archive(io.BytesIO(data), ArchiveLimits(free=1 << 20, ratio=10)) as archive:
        members = archive.members()
        next(members)
        with pytest.raises(BadArchive, match="at most 10 times its size is allowed"):
            next(members)


def test_a_zip_that_unpacks_to_far_more_than_it_has_is_refused() -> None:
    data = zipped({str(n): bytes(1 << 20) for n in range(4)})
    with pytest.raises(BadArchive, match="unpacks to more than 1000000; at most 100 times"):
        open_archive(io.BytesIO(data), ArchiveLimits(free=1_000_000))
    with open_archive(io.BytesIO(data)) as archive:
        assert len(list(archive.members())) == 4


@compressed
def test_a_compressed_tar_is_unpacked_for_other_orders(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path, data = tmp_path / "a", gnu(FILES)
    path.write_bytes(pack(data))
    assert b"".join(unpacked(path, ArchiveLimits())) == data
    with open_archive(path) as archive:
        first, *_ = archive.members()
        assert archive.read(first, LIMIT) == FILES["a.jpg"]
    path.write_bytes(data)
    assert not [*unpacked(path, ArchiveLimits())]


@pytest.mark.parametrize(
    "packing",
    [b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 200_000, tar_of([(b"a.jpg", b"photo")])],
    ids=["no-content", "plain"],
)
def test_another_thread_can_stop_reading(packing: bytes) -> None:
    limits = ArchiveLimits()
    limits.stop.set()
    with pytest.raises(BadArchive, match="its request has ended"):
        open_archive(io.BytesIO(packing), limits)


def test_an_xz_may_ask_for_as_much_memory_as_the_limits_allow() -> None:
    of_requests = ArchiveLimits(memory=XZ_MEMORY_OF_REQUESTS)
    small, large = (lzma.compress(gnu(FILES), preset=preset) for preset in (6, 9))
    assert contents(large) == [*FILES.items()]
    open_archive(io.BytesIO(small), of_requests)
    with pytest.raises(BadArchive, match="bytes of memory to be decompressed"):
        open_archive(io.BytesIO(large), of_requests)


CHANGED = {"a.jpg": b"first" * 10, LONG: b"second"}


@pytest.mark.parametrize(
    "data",
    [zipped(CHANGED), pytest.param(tarred(CHANGED.items()), marks=pytest.mark.slow)],
    ids=["zip", "tar"],
)
def test_every_single_changed_byte_gives_content_or_a_clear_error(data: bytes) -> None:
    allowed = (BadArchive, TooLarge)
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        with suppress(*allowed), open_archive(io.BytesIO(changed)) as archive:
            for member in archive.members():
                with suppress(*allowed):
                    found = archive.read(member, 100)
                    assert found in CHANGED.values() or data[:2] != b"PK"  # TARs have no checksums
                    assert len(found) == member.size


HUGE = b"\x80" + b"\0" * 3 + b"\x7f" + b"\xff" * 7
"""The size 2⁶³ - 1 as base 256, which a position behind it exceeds."""


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        tar_header(b"a.jpg", HUGE) + bytes(1024),
        tar_header(b".hidden", HUGE) + bytes(1024),
        pax((b"size", b"9223372036854775807")) + tar_of([(b"a.jpg", b"photo")]),
        wide(struct.pack("<3Q", 3, 3, 2**64 - 40)),
        wide_end(1, 2**64 - 1, 0),
    ],
    ids=["tar", "hidden", "pax", "member", "directory"],
)
def test_sizes_and_positions_beyond_those_of_files_are_no_fault_of_the_server(
    content: bytes, on_disk: bool, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    path.write_bytes(content)
    with (
        suppress(BadArchive),
        open_archive(path if on_disk else io.BytesIO(content)) as archive,
    ):
        for member in archive.members():
            with pytest.raises((BadArchive, TooLarge)):
                archive.read(member, 1000)


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("a/b.jpg", "a/b.jpg"),
        ("/etc/passwd", "etc/passwd"),
        ("../../etc/passwd", "etc/passwd"),
        ("a/../../b", "a/b"),
        ("./a//b", "a/b"),
        ("C:\\photos\\a.jpg", "photos/a.jpg"),
        ("./C:/photos/a.jpg", "photos/a.jpg"),
        ("..\\C:\\a.jpg", "a.jpg"),
        ("C:D:a.jpg", "a.jpg"),
        ("C:../D:./a.jpg", "a.jpg"),
        ("C:", "unnamed"),
        ("C:..", "unnamed"),
        ("a/C:/b.jpg", "a/C:/b.jpg"),
        ("a\0b\n.jpg", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}.jpg"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("\ud800.jpg", "\N{REPLACEMENT CHARACTER}.jpg"),
    ],
)
def test_a_name_becomes_a_relative_path_without_parents(given: str, safe: str) -> None:
    assert safe_name(given) == safe


def test_a_long_name_keeps_its_end_which_leaves_no_way_out_of_the_folder() -> None:
    rest = "y/" * ((LONGEST_NAME - 3) // 2) + "a"
    for first in ("x..", "x.", "..x..", "x./..", "xC:", "xC:D:", "x/" * 5000):
        for more in range(4):
            name = safe_name(f"{first}/{'z' * more}{rest}")
            assert len(name) <= LONGEST_NAME
            assert name.endswith("y/a")
            assert not {"", ".", ".."} & {*name.split("/")}
            assert name[1] != ":"
