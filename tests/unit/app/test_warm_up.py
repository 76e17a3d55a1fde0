"""The requests that a process sends itself before it serves: all are answered, none is counted."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from app import warm_up
from app.admission.clients import ApiKeys
from app.admission.counters import Rate
from app.service import Service
from tests.fakes import FakeEngine
from tests.in_process import answer, served
from workers.operations import Classify, FilterChain


async def test_every_request_of_the_warm_up_is_answered_and_none_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_up, "SECONDS", {False: 0.01})
    (tmp_path / "keys").write_text("a:secret\n")
    asked = set[type]()
    engine = FakeEngine(
        answer=answer,
        on_launch=lambda jobs: asked.update(type(job.operation) for job in jobs),
        device="cpu",
    )
    async with served(engine) as app:
        service: Service = app.state.service
        keys = service.keys = ApiKeys(tmp_path / "keys")
        service.admission.rate = Rate(1, 1)
        service.admission.line.set_images(20, 20)
        assumed = service.admission.line.speed()
        assert set(await warm_up.warm_up(app)) == {200}
        assert service.keys is keys
        assert service.admission.line.speed() != assumed, "it was measured, on many cores too"
        await asyncio.sleep(0.05)  # until observations would be written
        text = generate_latest(service.metrics.snapshot()).decode()
    assert asked == {Classify, FilterChain}
    assert "darkroom_images_total{" not in text


async def test_a_warm_up_without_an_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(warm_up, "PATIENCE", 0.05)
    monkeypatch.setattr(warm_up, "_requests", lambda _: [("/classify", "image/jpeg", b"")])
    async with served() as app:
        app.middleware_stack = never
        assert await warm_up.warm_up(app) == []
