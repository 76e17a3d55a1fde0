"""Every source is looked at before anything is started."""

import os
from pathlib import Path

import pytest

from app.bulk.errors import WrongUsage
from app.bulk.sources.contents import check, format_of
from models.codec import ImageFormat
from tests.pictures import jpeg, png


def test_every_source_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg())
    names = [str(tmp_path / "a.jpg"), str(tmp_path / "none.jpg"), str(tmp_path), "nul\0.jpg"]
    with pytest.raises(WrongUsage) as raised:
        check([*names, "https://example.org/cat.jpg"])
    lines = str(raised.value).split("\ndarkroom: ")
    assert lines[0] == f"{tmp_path}/none.jpg: No such file or directory"
    assert lines[1] == f"{tmp_path}: is a folder; name the files in it"
    assert lines[2].startswith("nul")
    assert lines[3:] == ["nothing was done"]


def test_files_urls_and_standard_input_are_fine(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg())
    check([str(tmp_path / "a.jpg"), "https://example.org/cat.jpg", "-"])


def test_standard_input_can_be_named_once() -> None:
    with pytest.raises(WrongUsage, match="only once"):
        check(["-", "-"])


def test_a_pipe_is_neither_opened_nor_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    check([str(tmp_path / "pipe")])
    assert format_of(str(tmp_path / "pipe")) is None


def test_the_format_is_told_by_the_first_bytes_and_not_by_the_name(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(png())
    (tmp_path / "b").write_bytes(jpeg())
    (tmp_path / "c.jpg").write_bytes(b"nothing that is known")
    found = [format_of(str(tmp_path / name)) for name in ("a.jpg", "b", "c.jpg")]
    assert found == [ImageFormat.PNG, ImageFormat.JPEG, None]
    assert format_of("https://example.org/a.jpg") is None
