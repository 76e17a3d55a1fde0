"""What `darkroom profile` measures."""

from pathlib import Path

import pytest

from app.cli import offline
from models.settings import Settings
from workers.operations import Classify
from workers.supervision import startup


class _Begun(Exception):
    """A worker on a GPU was asked for."""


def test_a_gpu_is_traced_only_when_it_is_fully_prepared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[object] = []

    def on_gpu(*given: object) -> None:
        asked.append(given[-1])
        raise _Begun

    monkeypatch.setattr(startup, "_on_gpu", on_gpu)
    monkeypatch.setattr(offline, "wanted_gpus", lambda _setting: 1)
    with pytest.raises(_Begun):
        offline.profile(Settings(weights="random"), Classify(), 0.1, tmp_path / "trace.json")
    assert asked == [False], "it would be traced while it prepares slots and graphs"
