"""The last batches of several workers, asked for over their connections."""

import asyncio
import secrets
from dataclasses import replace
from functools import partial

from tests.fakes import GUARD, FakeEngine, fake_job
from tests.worker_fixture import encode_fake, running_worker
from workers.backends.multi_process import ProcessBackend
from workers.scheduling.batcher import BatchLimits

LIMITS = BatchLimits(max_batch_size=4, max_batch_pixels=1 << 30)
ENGINE = partial(FakeEngine, slots=1, keep=True)


def test_the_batches_of_all_workers_are_listed_newest_first_with_their_requests() -> None:
    async def test() -> None:
        with running_worker(ENGINE, LIMITS) as first, running_worker(ENGINE, LIMITS) as second:
            addresses = [first.address, second.address]
            ours = ProcessBackend(addresses, 1 << 20, 20.0, encode=encode_fake)
            await ours.welcome()
            jobs = [replace(fake_job(n), request_id=f"r{n}") for n in range(8)]
            await asyncio.gather(*map(ours.run, jobs))

            async def seen() -> set[str]:
                found = await ours.batches(100)
                return {image.request_id for each in found for image in each.images}

            # A batch is remembered after its answers are delivered.
            while await seen() != {f"r{n}" for n in range(8)}:  # noqa: ASYNC110 (no event tells)
                await asyncio.sleep(0)
            found = await ours.batches(100)
            assert sorted(found, key=lambda each: -each.released_at) == found
            assert len({each.id for each in found}) == len(found)
            assert await ours.batches(1) == found[:1]
            await ours.aclose()

    asyncio.run(asyncio.wait_for(test(), 3 * GUARD))


def test_a_worker_that_ends_before_it_answers_has_no_batches() -> None:
    async def test() -> None:
        with running_worker(ENGINE, LIMITS) as worker:
            ours = ProcessBackend([worker.address], 1 << 20, 20.0, encode=encode_fake)
            await ours.welcome()
            (link,) = ours._links
            (line,) = link.lines
            asking = asyncio.ensure_future(ours.batches(10))
            await asyncio.sleep(0)
            line.protocol.abort()
            assert await asking == []
            await ours.aclose()

    asyncio.run(asyncio.wait_for(test(), 3 * GUARD))


def test_without_a_worker_there_are_no_batches() -> None:
    async def test() -> None:
        nowhere = f"\0darkroom-test-{secrets.token_hex(8)}"
        ours = ProcessBackend([nowhere], 1 << 20, 20.0, encode=encode_fake)
        assert await ours.batches(10) == []
        await ours.aclose()

    asyncio.run(asyncio.wait_for(test(), 3 * GUARD))
