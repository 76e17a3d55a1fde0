"""Bodies that make jobs, while they arrive: the memory of long lines is bounded for all of them."""

import asyncio
from pathlib import Path

from starlette.requests import Request
from starlette.types import Message

from app.jobs.store.arrivals import Arrivals
from app.jobs.store.database import opened
from app.jobs.submission.receiving import JSON_LINES, PIECE, Received, Receiver
from app.jobs.submission.room import DataRoom, Reservation
from models.domain.errors import Overloaded
from models.settings import Settings

PENDING = 30 << 20
"""Bytes of the line of each body: two are less than the room, two with their copies are more."""


def test_the_copies_of_long_lines_are_counted_too(tmp_path: Path) -> None:
    async def scenario() -> list[Received | BaseException]:
        all_came = asyncio.Event()
        engine = await opened(None, tmp_path)
        most = Settings().max_data_bytes
        room = DataRoom(Arrivals(engine, "me"), most, most)

        async def body(name: str) -> Received:
            messages: list[Message] = [
                {"type": "http.request", "body": b'{"data": "', "more_body": True},
                *({"type": "http.request", "body": b"a" * PIECE, "more_body": True},)
                * (PENDING // PIECE),
            ]

            async def receive() -> Message:
                if messages:
                    return messages.pop(0)
                await all_came.wait()
                return {"type": "http.request", "body": b"", "more_body": False}

            (folder := tmp_path / name).mkdir()
            receiver = Receiver(folder, Settings(), b"", 32, Reservation(room, name))
            scope = {"type": "http", "headers": [], "method": "POST", "path": "/jobs"}
            return await receiver.receive(Request(scope, receive), JSON_LINES[0])

        bodies = [asyncio.ensure_future(body(name)) for name in ("one", "other")]
        done, _ = await asyncio.wait(bodies, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        all_came.set()
        found = await asyncio.gather(*bodies, return_exceptions=True)
        await engine.dispose()
        assert len(done) == 1
        return found

    found = asyncio.run(scenario())
    assert sum(isinstance(each, Overloaded) for each in found) == 1
