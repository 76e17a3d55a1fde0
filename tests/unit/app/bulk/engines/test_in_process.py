"""The engine of a command without readers fills the batches that it computes as full ones."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app import main
from app.bulk.engines import in_process, reading
from app.bulk.engines.engine import Finished, Task
from app.bulk.engines.work import Classification
from app.bulk.sources.source import Source
from app.pipeline import memory
from app.telemetry.metrics import Metrics
from models.settings import Precision, Settings
from tests.pictures import jpeg
from workers.supervision import startup
from workers.supervision.startup import CPU_BATCH

BATCHES = 6

SMALL = jpeg(1, 64, 48)


def sample(registry: CollectorRegistry, name: str) -> float:
    """Return the sum of a metric over its labels."""
    families = registry.collect()
    return sum(each.value for family in families for each in family.samples if each.name == name)


@pytest.fixture
def patient_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let batches wait for so long that a busy machine is not taken for a wait in vain."""
    monkeypatch.setattr(startup, "FILL", 20.0)


def delayed(registry: CollectorRegistry) -> float:
    """Return the number of batches that waited for further images until their time was over."""
    name, labels = "darkroom_batch_releases_total", {"reason": "delay"}
    return registry.get_sample_value(name, labels) or 0


async def records(answers: AsyncGenerator[list[Finished], None]) -> int:
    """Return the number of records that are no errors."""
    found = 0
    async with aclosing(answers) as chunks:
        async for chunk in chunks:
            found += sum(not each.failed for each in chunk)
    return found


def answered(folder: Path, photo: bytes, images: int, **settings: Any) -> CollectorRegistry:
    """Answer the same photo as several images; return the metrics."""
    file = folder / "photo.jpg"
    file.write_bytes(photo)
    metrics = Metrics()

    async def run() -> None:
        given = Settings(
            weights="random", precision=Precision.FP32, gpus="0", threads=2, **settings
        )
        service = await main.start_service(given, metrics, full_batches=True)
        engine = await in_process.start(given, Classification({}, "resnet18"), service)
        try:
            tasks = (Task(number, Source(str(file), "")) for number in range(images))
            assert await records(engine.answers(tasks)) == images
        finally:
            await engine.aclose()

    asyncio.run(run())
    return metrics.registry


def test_batches_of_a_cpu_are_filled(tmp_path: Path) -> None:
    metrics = answered(tmp_path, SMALL, BATCHES * CPU_BATCH)
    # Where other programs hold all cores, a batch may wait in vain for its last images.
    assert sample(metrics, "darkroom_batch_size_count") <= 2 * BATCHES


@pytest.mark.usefixtures("patient_batches")
def test_images_that_leave_no_memory_for_others_do_not_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LEAST", 1)
    monkeypatch.setattr(memory, "PER_PROCESS", 0)
    # Memory has room for one image of 12 megapixels at a time.
    metrics = answered(tmp_path, jpeg(1, 4000, 3000), BATCHES)
    assert delayed(metrics) == 0


@pytest.mark.usefixtures("patient_batches")
@pytest.mark.parametrize("images", [1, CPU_BATCH + 1])
def test_the_last_images_do_not_wait_for_others(images: int, tmp_path: Path) -> None:
    assert delayed(answered(tmp_path, SMALL, images)) == 0


@pytest.mark.usefixtures("patient_batches")
def test_images_whose_bytes_leave_no_room_for_others_do_not_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BYTES", 1)
    monkeypatch.setattr(in_process, "BYTES_AHEAD", 1)
    assert delayed(answered(tmp_path, SMALL, 3)) == 0
