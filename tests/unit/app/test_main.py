"""Starts that fail half way, and the status of a worker that came back."""

from functools import partial

import pytest

from app import main
from app.telemetry.metrics import Metrics
from models.settings import Settings
from workers.backends.in_process import LocalBackend


async def test_a_failure_late_in_the_start_stops_the_worker_that_was_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[LocalBackend] = []
    aclose = LocalBackend.aclose

    async def noted(self: LocalBackend) -> None:
        await aclose(self)
        closed.append(self)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no room for the pipeline")

    monkeypatch.setattr(LocalBackend, "aclose", noted)
    monkeypatch.setattr(main, "Pipeline", fail)
    connect = partial(main.local_executor, weights=False)
    with pytest.raises(RuntimeError, match="no room for the pipeline"):
        await main.start_service(Settings(), Metrics(), connect, private=True)
    (backend,) = closed
    assert not backend.load().alive
