import io
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from app.archives.reading import Archive, ArchiveLimits, Member, open_archive
from models.domain.errors import BadArchive, TooLarge
from tests.chaos.hostile.archives import wide, wide_end

LIMIT = 1 << 20


def packed(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a ZIP of files by their names."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return sink.getvalue()


def contents(data: bytes) -> dict[str, bytes]:
    """Return what a ZIP holds, by name."""
    with open_archive(io.BytesIO(data)) as archive:
        return {each.name: archive.read(each, LIMIT) for each in archive.members()}


def patched(data: bytes, change: Callable[[bytearray, int], None], entry: int = 0) -> bytes:
    """Return a ZIP with one entry of its directory changed, whose position `change` is given."""
    changed, at = bytearray(data), -1
    for _ in range(entry + 1):
        at = data.index(b"PK\x01\x02", at + 1)
    change(changed, at)
    return bytes(changed)


def only(archive: Archive) -> Member:
    """Return the single member of an archive."""
    (member,) = archive.members()
    return member


FILES = {"a.jpg": b"first" * 100, "folder/b.png": bytes(range(256)), "c.gif": b""}


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2], ids=str
)
def test_members_are_read_in_their_order_with_their_content(method: int) -> None:
    assert list(contents(packed(FILES, method)).items()) == list(FILES.items())


def test_a_path_is_opened_and_indices_count_from_zero(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(packed(FILES))
    with open_archive(tmp_path / "x.zip") as archive:
        assert [each.index for each in archive.members()] == [0, 1, 2]


def test_folders_links_and_hidden_files_are_left_out() -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.mkdir("folder")
        link = zipfile.ZipInfo("link.jpg")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        for name in ("__MACOSX/._a.jpg", ".hidden.jpg", "x/.git/a.jpg", "a.jpg"):
            archive.writestr(name, b"1")
    assert list(contents(sink.getvalue())) == ["a.jpg"]


def test_names_without_a_flag_are_utf8_if_they_can_be_else_code_page_437() -> None:
    data = packed({"aaaa.jpg": b"1", "bbb.jpg": b"2"})
    data = data.replace(b"aaaa", "äö".encode()).replace(b"bbb", b"b\x84b")
    assert list(contents(data)) == ["äö.jpg", "bäb.jpg"]


def test_of_two_members_of_a_name_both_are_read_and_the_last_is_found() -> None:
    data = packed({"aa": b"old", "ab": b"new"}).replace(b"ab", b"aa")
    with open_archive(io.BytesIO(data)) as archive:
        assert [archive.read(each, LIMIT) for each in archive.members()] == [b"old", b"new"]
        found = archive.find("aa")
        assert found is not None
        assert archive.read(found, LIMIT) == b"new"
        assert archive.find("missing") is None


def test_a_member_over_the_limit_is_refused_alone() -> None:
    with open_archive(io.BytesIO(packed({"a": b"12345", "b": b"1234"}))) as archive:
        large, small = archive.members()
        with pytest.raises(TooLarge, match="the image has 5 bytes; one has at most 4"):
            archive.read(large, 4)
        assert archive.read(small, 4) == b"1234"


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_damaged_member_harms_no_other(method: int) -> None:
    data = packed({"a.jpg": bytes(range(256)) * 9, "b.jpg": b"good"}, method)
    at = data.index(b"a.jpg") + 20
    damaged = data[:at] + bytes(8) + data[at + 8 :]
    with open_archive(io.BytesIO(damaged)) as archive:
        first, second = archive.members()
        with pytest.raises(BadArchive, match=r"'a\.jpg' is damaged in the ZIP"):
            archive.read(first, LIMIT)
        assert archive.read(second, LIMIT) == b"good"


def _encrypt(data: bytearray, at: int) -> None:
    data[at + 8] |= 1


def _lzma(data: bytearray, at: int) -> None:
    data[at + 10] = 14


def _smaller(data: bytearray, at: int) -> None:
    struct.pack_into("<L", data, at + 24, 3)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_encrypt, "is encrypted; send it without a password"),
        (_lzma, r"packed by method 14; stored \(0\), deflate \(8\) and bzip2 \(12\) are read"),
        (_smaller, "is damaged"),
    ],
)
def test_a_member_that_cannot_be_read_says_why(
    change: Callable[[bytearray, int], None], text: str
) -> None:
    data = patched(packed({"a": b"12345" * 100, "b": b"good"}), change)
    with open_archive(io.BytesIO(data)) as archive:
        first, second = archive.members()
        with pytest.raises(BadArchive, match=text):
            archive.read(first, LIMIT)
        assert archive.read(second, LIMIT) == b"good"


def test_an_archive_that_unpacks_to_far_more_than_it_has_is_refused() -> None:
    data = packed({str(n): bytes(1 << 20) for n in range(4)})
    with pytest.raises(BadArchive, match="unpacks to more than 1000000; at most 100 times"):
        open_archive(io.BytesIO(data), ArchiveLimits(free=1_000_000))
    with open_archive(io.BytesIO(data)) as archive:
        assert len(list(archive.members())) == 4


def test_a_directory_with_room_for_too_many_entries_is_refused_before_it_is_read() -> None:
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 11_000, 4, 0)
    with pytest.raises(BadArchive, match="more than 10 entries; send several"):
        open_archive(io.BytesIO(b"PK\x03\x04" + bytes(11_000) + end), ArchiveLimits(members=10))


def test_a_directory_with_more_entries_than_it_states_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = bytearray(packed({str(n): b"" for n in range(20)}))
    struct.pack_into("<2H", data, len(data) - 14, 1, 1)
    monkeypatch.setattr(zipfile, "ZipInfo", None)  # `zipfile` makes one of each entry
    with pytest.raises(BadArchive, match="more than 10 entries"):
        open_archive(io.BytesIO(data), ArchiveLimits(members=10))


@pytest.mark.parametrize("kept", [30, 200, -30, -1])
def test_a_cut_archive_is_refused_with_a_clear_text(kept: int) -> None:
    with pytest.raises(BadArchive, match=r"the ZIP is damaged or incomplete|directory is damaged"):
        open_archive(io.BytesIO(packed(FILES)[:kept]))


def test_every_single_changed_byte_gives_content_or_a_clear_error() -> None:
    data = packed({"a.jpg": b"first" * 10, "b.jpg": b"second"})
    allowed = (BadArchive, TooLarge)
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        with suppress(*allowed), open_archive(io.BytesIO(changed)) as archive:
            for member in archive.members():
                with suppress(*allowed):
                    assert archive.read(member, 100) in (b"first" * 10, b"second")


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    "data",
    [wide(struct.pack("<3Q", 3, 3, 2**64 - 40)), wide_end(1, 2**64 - 1, 0)],
    ids=["member", "directory"],
)
def test_positions_beyond_those_of_files_are_no_fault_of_the_server(
    data: bytes, on_disk: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    with (
        pytest.raises(BadArchive, match=r"damaged|more than 1000000 entries"),
        open_archive(path if on_disk else io.BytesIO(data)) as archive,
    ):
        archive.read(only(archive), LIMIT)


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(BadArchive, match="neither a ZIP nor a TAR"):
        open_archive(io.BytesIO(b"\xff\xd8\xff\xe0" * 1000))
    with pytest.raises(BadArchive, match="it has no bytes"):
        open_archive(io.BytesIO(b""))
