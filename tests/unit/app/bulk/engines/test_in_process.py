"""The engine of a command without readers fills the batches that it computes as full ones."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from prometheus_client import CollectorRegistry

from app import main
from app.bulk.engines import in_process
from app.bulk.engines.engine import Finished, Task
from app.bulk.engines.work import Classification
from app.bulk.sources.source import Source
from app.telemetry.metrics import Metrics
from models.settings import Precision, Settings
from tests.pictures import jpeg
from workers.supervision.startup import CPU_BATCH

BATCHES = 6


def sample(registry: CollectorRegistry, name: str) -> float:
    """Return the sum of a metric over its labels."""
    families = registry.collect()
    return sum(each.value for family in families for each in family.samples if each.name == name)


async def records(answers: AsyncGenerator[list[Finished], None]) -> int:
    """Return the number of records that are no errors."""
    found = 0
    async with aclosing(answers) as chunks:
        async for chunk in chunks:
            found += sum(not each.failed for each in chunk)
    return found


def test_batches_of_a_cpu_are_filled(tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(jpeg(1, 64, 48))
    images = BATCHES * CPU_BATCH

    async def run() -> None:
        settings = Settings(weights="random", precision=Precision.FP32, gpus="0", threads=2)
        metrics = Metrics()
        service = await main.start_service(settings, metrics, full_batches=True)
        engine = await in_process.start(settings, Classification({}, "resnet18"), service)
        try:
            tasks = (Task(number, Source(str(photo), "")) for number in range(images))
            assert await records(engine.answers(tasks)) == images
            # Where other programs hold all cores, a batch may wait in vain for its last images.
            assert sample(metrics.registry, "darkroom_batch_size_count") <= 2 * BATCHES
        finally:
            await engine.aclose()

    asyncio.run(run())
