"""Files that are there wholly or not at all."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from app.bulk.atomic_file import unfinished, write


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_file_that_appears_while_ours_is_written_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "a.png"

    def meets_another() -> None:
        with unfinished(target, replace=False) as temporary:
            temporary.write_bytes(b"new")
            target.write_bytes(b"theirs")

    with pytest.raises(FileExistsError):
        meets_another()
    assert target.read_bytes() == b"theirs"
    assert names(tmp_path) == ["a.png"]


@pytest.mark.parametrize("end", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_full_disk_or_ctrl_c_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, end: BaseException
) -> None:
    target = tmp_path / "a.png"
    target.write_bytes(b"old")

    def ends_halfway() -> None:
        with unfinished(target, replace=True) as temporary:
            temporary.write_bytes(b"half of the ne")
            raise end

    with pytest.raises(type(end)):
        ends_halfway()
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["a.png"]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "a.png", b"picture", replace=False)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.png").stat().st_mode) == 0o640


def test_of_a_link_the_file_it_points_to_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "a.png", tmp_path / "link.png"
    link.symlink_to(real)
    write(link, b"made", replace=False)
    assert (link.is_symlink(), real.read_bytes()) == (True, b"made")
    with pytest.raises(FileExistsError):
        write(link, b"again", replace=False)
    write(link, b"again", replace=True)
    assert (link.is_symlink(), real.read_bytes()) == (True, b"again")
    assert names(tmp_path / "real") == ["a.png"]


@pytest.mark.parametrize("replace", [False, True])
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path, replace: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"picture", replace=replace)
    reader.join()
    assert read == [b"picture"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def no_links(_source: Path, _target: Path, **_named: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_a_file_system_without_links_gets_whole_files_and_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", no_links)
    write(tmp_path / "a.png", b"first", replace=False)
    with pytest.raises(FileExistsError):
        write(tmp_path / "a.png", b"second", replace=False)
    assert (tmp_path / "a.png").read_bytes() == b"first"
    assert names(tmp_path) == ["a.png"]
