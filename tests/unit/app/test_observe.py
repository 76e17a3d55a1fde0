"""Clients that stop, one way or the other."""

import asyncio

from starlette.types import Message, Receive, Scope, Send

from app.metrics import Metrics
from app.observe import Observe

SCOPE = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": None}


def test_a_stream_that_nobody_reads_ends() -> None:
    ended = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
        finally:
            ended.set()

    async def stuck(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def scenario() -> None:
        async with asyncio.timeout(5):
            await Observe(endless, Metrics(), 0.01)(dict(SCOPE), receive, stuck)
        assert ended.is_set()

    asyncio.run(scenario())
