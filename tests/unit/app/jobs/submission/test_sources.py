"""The archive of a job whose failed items are tried again: one file for both jobs, or a copy."""

import errno
import os
from pathlib import Path

import pytest

from app.jobs.submission.sources import _shared
from models.domain.job_errors import StorageFull

SIZE = 5 << 19


def refusing(number: int) -> None:
    raise OSError(number, os.strerror(number))


def test_an_archive_is_shared_without_room(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"a" * SIZE)
    _shared(tmp_path / "one", tmp_path / "other", lambda _: pytest.fail("nothing is written"))
    assert (tmp_path / "one").samefile(tmp_path / "other")


def test_a_copy_takes_room_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", lambda *_: refusing(errno.EPERM))
    (tmp_path / "one").write_bytes(b"a" * SIZE)
    taken: list[int] = []
    _shared(tmp_path / "one", tmp_path / "other", taken.append)
    assert sum(taken) == SIZE == (tmp_path / "other").stat().st_size

    def full(n_bytes: int) -> None:
        if sum(taken) + n_bytes > SIZE + (1 << 20):
            raise StorageFull("no room")
        taken.append(n_bytes)

    with pytest.raises(StorageFull):
        _shared(tmp_path / "one", tmp_path / "third", full)
    assert (tmp_path / "third").stat().st_size <= 1 << 20


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.ENOENT])
def test_other_errors_make_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", lambda *_: refusing(number))
    (tmp_path / "one").write_bytes(b"a")
    with pytest.raises(OSError, match=os.strerror(number)):
        _shared(tmp_path / "one", tmp_path / "other", lambda _: None)
    assert not (tmp_path / "other").exists()
