"""Every argument is looked at before anything is started."""

import os
from pathlib import Path

import pytest

from app.bulk.errors import WrongUsage
from app.bulk.sources import Sources
from tests.pictures import jpeg


def test_every_source_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg())
    os.mkfifo(tmp_path / "pipe")  # it is neither opened nor read
    good = [str(tmp_path / "a.jpg"), str(tmp_path / "pipe"), "https://example.org/cat.jpg", "-"]
    Sources(good).check()
    with pytest.raises(WrongUsage) as raised:
        Sources([*good, str(tmp_path / "none.jpg"), "nul\0.jpg"]).check()
    lines = str(raised.value).split("\ndarkroom: ")
    assert lines[0] == f"{tmp_path}/none.jpg: No such file or directory"
    assert lines[1].startswith("nul")
    assert lines[2:] == ["nothing was done"]


def test_standard_input_can_be_named_once() -> None:
    with pytest.raises(WrongUsage, match="only once"):
        Sources(["-", "-"])
