"""The head of an answer leaves with the first of its body, and never later than this turn."""

import asyncio
from collections.abc import Awaitable, Callable

from app.connections.http1.answer_stream import AnswerStream


class Transport:
    """Remembers each write, and the close."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def run(scenario: Callable[[Transport, AnswerStream], Awaitable[None]]) -> None:
    async def bounded() -> None:
        transport = Transport()
        await scenario(transport, AnswerStream(transport))

    asyncio.run(bounded())


def test_the_head_and_the_body_of_an_answer_are_one_write() -> None:
    async def scenario(transport: Transport, answers: AnswerStream) -> None:
        for _ in range(2):
            answers.hold()
            answers.write(b"head ")
            answers.write(b"body")
            answers.write(b"more")
        await asyncio.sleep(0)
        assert transport.written == [b"head body", b"more"] * 2

    run(scenario)


def test_a_head_does_not_wait_for_a_body_that_comes_later() -> None:
    async def scenario(transport: Transport, answers: AnswerStream) -> None:
        answers.hold()
        answers.write(b"head")
        assert transport.written == []
        await asyncio.sleep(0)
        assert transport.written == [b"head"]
        answers.write(b"body")
        assert transport.written == [b"head", b"body"]

    run(scenario)


def test_a_close_writes_the_head_first() -> None:
    async def scenario(transport: Transport, answers: AnswerStream) -> None:
        answers.hold()
        answers.write(b"head")
        answers.close()
        assert (transport.written, transport.closed) == ([b"head"], True)
        await asyncio.sleep(0)

    run(scenario)


def test_a_head_whose_connection_was_closed_meanwhile_is_dropped() -> None:
    async def scenario(transport: Transport, answers: AnswerStream) -> None:
        answers.hold()
        answers.write(b"head")
        transport.close()
        await asyncio.sleep(0)
        assert transport.written == []

    run(scenario)
