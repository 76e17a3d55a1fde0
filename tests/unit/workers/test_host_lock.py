"""Locks between the processes of a host; each `with` opens the file anew, as a process would."""

import threading
from pathlib import Path

import pytest

from workers import host_lock as module
from workers.host_lock import host_lock

PATIENCE = 60.0
"""Seconds for a thread of the test; it needs milliseconds."""


def test_the_second_waits_until_the_first_is_done(tmp_path: Path) -> None:
    order, waiting = [], threading.Event()

    def second() -> None:
        waiting.set()
        with host_lock([tmp_path], "lock", "works"):
            order.append("second")

    thread = threading.Thread(target=second)
    with host_lock([tmp_path], "lock", "works"):
        thread.start()
        assert waiting.wait(PATIENCE)
        order.append("first")
    thread.join(PATIENCE)
    assert order == ["first", "second"]


def test_another_name_is_another_lock(tmp_path: Path) -> None:
    with host_lock([tmp_path], "gpu-0.lock", "works"), host_lock([tmp_path], "gpu-1.lock", "works"):
        assert {each.name for each in tmp_path.iterdir()} == {"gpu-0.lock", "gpu-1.lock"}


def test_a_folder_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with host_lock([tmp_path / "file" / "below", tmp_path / "good"], "lock", "works"):
        assert (tmp_path / "good" / "lock").is_file()
    with host_lock([tmp_path / "file" / "below"], "lock", "works"):
        pass


def test_an_error_of_the_work_is_not_taken_for_one_of_the_lock(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="of the work"), host_lock([tmp_path], "lock", "works"):
        raise OSError("of the work")


def test_a_process_that_keeps_the_lock_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    with host_lock([tmp_path], "lock", "works"), host_lock([tmp_path], "lock", "works"):
        assert "not waiting any longer" in caplog.text
