"""Compiled kernels on disk: what finds them, what refuses them, and where they are kept."""

import stat
from pathlib import Path

import pytest

from workers.kernels.cubins import CubinStore, file_of

MODULE = "filters/tone/point.cu"
FILE = file_of(MODULE, "text", ("-a",), "sm_90", "nvrtc 12.8")


@pytest.mark.parametrize(
    "changed",
    [
        ("other", ("-a",), "sm_90", "nvrtc 12.8"),
        ("text", ("-b",), "sm_90", "nvrtc 12.8"),
        ("text", ("-a",), "sm_80", "nvrtc 12.8"),
        ("text", ("-a",), "sm_90", "nvrtc 12.9"),
        ("text", ("-a", "-b"), "sm_90", "nvrtc 12.8"),
    ],
)
def test_other_text_options_architecture_or_compiler_find_nothing(
    tmp_path: Path, changed: tuple[str, tuple[str, ...], str, str]
) -> None:
    store = CubinStore([tmp_path])
    store.add(FILE, b"cubin")
    assert store.find(file_of(MODULE, *changed)) is None


@pytest.mark.parametrize("found", [b"", b"cub", bytes(32) + b"cubin"])
def test_a_damaged_cubin_is_named_and_replaced(
    found: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CubinStore([tmp_path])
    path = store.add(FILE, b"cubin")
    assert path is not None
    path.write_bytes(found)
    assert store.find(FILE) is None
    assert f"{path} is damaged" in caplog.text
    store.add(FILE, b"cubin")
    assert store.find(FILE) == b"cubin"


def test_the_first_folder_is_preferred_and_the_first_writable_one_is_written(
    tmp_path: Path,
) -> None:
    image, user = tmp_path / "image", tmp_path / "user"
    image.write_bytes(b"")  # a file in place of the folder: nothing can be written below it
    both = CubinStore([image, user])
    path = both.add(FILE, b"compiled here")
    assert path is not None
    assert user in path.parents
    assert both.find(FILE) == b"compiled here"
    image.unlink()
    CubinStore([image]).add(FILE, b"shipped")
    assert both.find(FILE) == b"shipped"


def test_a_store_that_cannot_write_adds_nothing_and_still_locks(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = CubinStore([tmp_path / "file" / "below"])
    assert not store.writable()
    assert store.add(FILE, b"cubin") is None
    with store.lock():
        assert store.find(FILE) is None


def test_a_cubin_can_be_read_by_the_user_of_an_image_and_leaves_no_other_file(
    tmp_path: Path,
) -> None:
    path = CubinStore([tmp_path]).add(FILE, b"cubin")
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [path]
