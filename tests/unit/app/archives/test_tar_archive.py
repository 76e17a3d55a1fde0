import bz2
import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from app.archives.reading import XZ_MEMORY_OF_REQUESTS, ArchiveLimits, open_archive, unpacked
from models.domain.errors import BadArchive, TooLarge
from tests.chaos.hostile.archives import pax, tar_header, tar_of

LIMIT = 1 << 20
FILES = [("a.jpg", b"first" * 500), ("folder/b.png", bytes(range(256))), ("c.gif", b"")]
LONG = "folder/" * 30 + "ä.jpg"
PACKINGS: list[Callable[[bytes], bytes]] = [bytes, gzip.compress, bz2.compress, lzma.compress]


def packed(files: Iterable[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a TAR of files with their names."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=form) as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def contents(data: bytes) -> list[tuple[str, bytes]]:
    """Return names and contents in the order of the archive."""
    with open_archive(io.BytesIO(data)) as archive:
        return [(each.name, archive.read(each, LIMIT)) for each in archive.members()]


@pytest.mark.parametrize("pack", PACKINGS)
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "gnu"])
def test_members_are_read_with_long_names_and_whatever_compression(
    pack: Callable[[bytes], bytes], form: int
) -> None:
    files = [*FILES, (LONG, b"long")]
    assert contents(pack(packed(files, form))) == files


def test_members_of_a_plain_tar_are_read_in_any_order_and_again() -> None:
    with open_archive(io.BytesIO(packed(FILES))) as archive:
        members = list(archive.members())
        for each in reversed(members):
            assert (each.name, archive.read(each, LIMIT)) == FILES[each.index]
        assert list(archive.members()) == members
        assert archive.find("folder/b.png") == members[1]
        assert archive.find("missing") is None


def test_folders_links_devices_and_hidden_files_are_left_out() -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, kind in (("d", tarfile.DIRTYPE), ("s", tarfile.SYMTYPE), ("h", tarfile.LNKTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        device = tarfile.TarInfo("null")
        device.type = tarfile.CHRTYPE
        archive.addfile(device)
        for name in (".hidden.jpg", "../../etc/a.jpg"):
            info = tarfile.TarInfo(name)
            info.size = 1
            archive.addfile(info, io.BytesIO(b"1"))
    assert contents(sink.getvalue()) == [("etc/a.jpg", b"1")]


def test_members_before_a_damaged_header_are_read_and_the_error_says_where() -> None:
    data = bytearray(packed(FILES, tarfile.GNU_FORMAT))
    second = 512 + 2560
    data[second : second + 100] = bytes(100)
    with open_archive(io.BytesIO(data)) as archive:
        members = archive.members()
        assert archive.read(next(members), LIMIT) == FILES[0][1]
        with pytest.raises(BadArchive, match=f"the TAR is damaged at byte {second}"):
            next(members)


def test_a_damaged_content_harms_no_other_member() -> None:
    data = bytearray(packed(FILES, tarfile.GNU_FORMAT))
    data[600:700] = bytes(100)
    found = contents(bytes(data))
    assert found[0][1] != FILES[0][1]
    assert found[1:] == FILES[1:]


def test_a_member_that_is_cut_off_is_its_own_error() -> None:
    with open_archive(io.BytesIO(packed(FILES, tarfile.GNU_FORMAT)[:1500])) as archive:
        (member,) = archive.members()
        with pytest.raises(BadArchive, match="cut off: the TAR ends before it does"):
            archive.read(member, LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize("pack", PACKINGS[1:])
def test_a_cut_compressed_archive_is_never_taken_for_a_whole_one(
    pack: Callable[[bytes], bytes],
) -> None:
    noise = random.Random(1).randbytes(3_000_000)
    data = pack(packed([("a.jpg", b"1"), ("b.jpg", noise), ("c.jpg", b"3")]))
    with (
        open_archive(io.BytesIO(data[: len(data) // 2])) as archive,
        pytest.raises(BadArchive, match="the compressed TAR is damaged after"),
    ):
        list(archive.members())


def test_a_member_over_the_limit_is_refused_alone() -> None:
    with open_archive(io.BytesIO(packed(FILES))) as archive:
        first, second, _ = archive.members()
        with pytest.raises(TooLarge, match="the image has 2500 bytes; one has at most 256"):
            archive.read(first, 256)
        assert archive.read(second, 256) == FILES[1][1]


def test_an_extended_header_without_end_is_refused_before_it_is_read() -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 8 << 30
    data = header.tobuf(tarfile.GNU_FORMAT)
    with (
        open_archive(io.BytesIO(data)) as archive,
        pytest.raises(BadArchive, match="extended header of 8589934592 bytes"),
    ):
        list(archive.members())


@pytest.mark.parametrize("pack", PACKINGS[1:])
def test_a_bomb_is_refused_before_it_is_unpacked(pack: Callable[[bytes], bytes]) -> None:
    data = pack(packed([("a.jpg", bytes(8 << 20)), ("b.jpg", b"1")]))
    limits = ArchiveLimits(free=1 << 20, ratio=10)
    with open_archive(io.BytesIO(data), limits) as archive:
        members = archive.members()
        next(members)
        with pytest.raises(BadArchive, match="at most 10 times its size is allowed"):
            next(members)


def test_more_members_than_allowed_are_refused() -> None:
    data = packed([(f"{n}.jpg", b"") for n in range(9)])
    with (
        open_archive(io.BytesIO(data), ArchiveLimits(members=8)) as archive,
        pytest.raises(BadArchive, match="more than 8 entries"),
    ):
        list(archive.members())


def test_headers_that_never_reach_a_member_are_counted_too() -> None:
    header = tarfile.TarInfo("x")
    header.type = tarfile.XHDTYPE
    data = header.tobuf(tarfile.GNU_FORMAT) * 100
    with (
        open_archive(io.BytesIO(data), ArchiveLimits(members=8)) as archive,
        pytest.raises(BadArchive, match="more than 8 entries"),
    ):
        list(archive.members())


@pytest.mark.parametrize("pack", PACKINGS[1:])
def test_a_compressed_tar_is_unpacked_for_other_orders(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path, data = tmp_path / "a", packed(FILES)
    path.write_bytes(pack(data))
    assert b"".join(unpacked(path, ArchiveLimits())) == data
    with open_archive(path) as archive:
        first, *_ = archive.members()
        assert archive.read(first, LIMIT) == FILES[0][1]
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
    small, large = (lzma.compress(packed(FILES), preset=preset) for preset in (6, 9))
    assert contents(large) == FILES
    open_archive(io.BytesIO(small), of_requests)
    with pytest.raises(BadArchive, match="bytes of memory to be decompressed"):
        open_archive(io.BytesIO(large), of_requests)


@pytest.mark.slow
def test_every_single_changed_byte_gives_content_or_a_clear_error() -> None:
    data = packed([("a.jpg", b"first"), (LONG, b"second")])
    allowed = (BadArchive, TooLarge)
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        with suppress(*allowed), open_archive(io.BytesIO(changed)) as archive:
            for member in archive.members():
                with suppress(*allowed):
                    assert len(archive.read(member, 100)) == member.size


def test_a_compressed_image_is_no_archive() -> None:
    with pytest.raises(BadArchive, match="neither a ZIP nor a TAR"):
        open_archive(io.BytesIO(gzip.compress(b"\xff\xd8\xff\xe0" * 1000)))


HUGE = b"\x80" + b"\0" * 3 + b"\x7f" + b"\xff" * 7
"""The size 2⁶³ - 1 as base 256, which a position behind it exceeds."""


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        tar_header(b"a.jpg", HUGE) + bytes(1024),
        tar_header(b".hidden", HUGE) + bytes(1024),
        pax((b"size", b"9223372036854775807")) + tar_of([(b"a.jpg", b"photo")]),
    ],
)
def test_sizes_beyond_those_of_files_are_no_fault_of_the_server(
    content: bytes, on_disk: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(content)
    with open_archive(path if on_disk else io.BytesIO(content)) as archive:
        for member in archive.members():
            with pytest.raises(TooLarge):
                archive.read(member, 1000)


def test_a_size_that_no_file_has_is_a_damage() -> None:
    content = tar_header(b"a.jpg", b"\x80" + b"\xff" * 11) + bytes(1024)
    with open_archive(io.BytesIO(content)) as archive:
        for use in (lambda: [*archive.members()], lambda: archive.find("a.jpg")):
            with pytest.raises(BadArchive, match="damaged at byte 0"):
                use()
