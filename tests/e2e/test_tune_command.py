"""The servers that `darkroom tune` measures."""

import asyncio

import pytest

from app.cli.load.trial import rate
from tests.pictures import jpeg
from tests.server import PATIENCE

FLAGS = {"weights": "random", "gpus": "0", "precision": "fp32"}


def test_a_server_of_its_own_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DARKROOM_RATE_LIMIT", "1/1")  # it would refuse almost all of the load
    found = asyncio.run(rate(FLAGS, [jpeg()], 2, PATIENCE))
    assert found is not None
    images_per_second, client_limited = found
    assert images_per_second > 0
    assert not client_limited


def test_a_server_that_cannot_start_has_no_rate() -> None:
    assert asyncio.run(rate({"weights": "/nonexistent.pth"}, [jpeg()], 2, PATIENCE)) is None
