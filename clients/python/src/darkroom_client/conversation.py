"""The conversation with a server, written once for both clients.

The conversation is asynchronous in form and does no I/O of its own: a `Wire` sends and waits. The
wire of the synchronous client blocks and never suspends, so that `sync_side.run` can drive these
coroutines without an event loop.
"""

import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from darkroom_client import answers
from darkroom_client.errors import (
    ConnectionFailed,
    DarkroomError,
    DeadlineExceeded,
    request_error,
)
from darkroom_client.files import whole
from darkroom_client.options import CallOptions, JobOptions
from darkroom_client.records import ImageResult
from darkroom_client.requests import Call, check_deadline
from darkroom_client.retries import Retries, again, retry_after

T = TypeVar("T")


_CHANCE = random.SystemRandom()


class Answer(Protocol):
    """An answer whose headers have come; `headers` are looked up by lower-case names."""

    status: int
    headers: Mapping[str, str]

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes; raises ConnectionFailed if it breaks off."""
        ...


class Wire(Protocol):
    """Connection of a conversation with the outside world."""

    def send(self, call: Call, seconds: float | None) -> AbstractAsyncContextManager[Answer]:
        """Send a request; no step of it may wait longer than `seconds`.

        Raises ConnectionFailed.
        """
        ...

    async def pause(self, seconds: float) -> None:
        """Wait."""
        ...

    async def call(self, function: Callable[..., T], /, *arguments: Any) -> T:
        """Return what a function returns that reads or writes files; raises OSError."""
        ...


class Conversations:
    """A group of methods of both clients.

    `run` and `iterate` make results of conversations: values or awaitables, iterators or
    asynchronous iterators.
    """

    def __init__(
        self,
        wire: Wire,
        retries: Retries,
        run: Callable[..., Any],
        iterate: Callable[..., Any],
    ) -> None:
        self._wire, self._retries = wire, retries
        self._run, self._iterate = run, iterate


@dataclass(slots=True)
class Attempts:
    """The tries of one request: their number, their id and their common deadline."""

    retries: Retries
    seconds: float | None = None
    request_id: str = ""
    tried: int = 0
    _end: float | None = field(init=False)

    def __post_init__(self) -> None:
        self.request_id = self.request_id or uuid4().hex
        self._end = None if self.seconds is None else time.monotonic() + self.seconds

    @classmethod
    def of(cls, retries: Retries, options: CallOptions | JobOptions) -> "Attempts":
        """Return the tries of one request; raises ValueError for a deadline that has passed."""
        check_deadline(options.get("deadline"))
        return cls(retries, options.get("deadline"), options.get("request_id") or "")

    def left(self) -> float | None:
        """Return the seconds before the deadline; raises DeadlineExceeded when it has passed."""
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded(f"no answer within {self.seconds:g} s", self.request_id)
        return left

    def started(self, call: Call) -> Call:
        """Count one more try; return its request with the id and what is left of the deadline."""
        self.tried += 1
        left = self.left()
        headers = {"X_Request_ID": self.request_id}
        if left is not None:
            headers["X_Deadline_Ms"] = str(max(1, int(left * 1000)))
        return call.with_headers(**headers)

    def pause(self, told: float | None) -> float | None:
        """Return the seconds before the next try, or None if this was the last one."""
        return self.retries.pause(self.tried, told, self.left(), _CHANCE.random())


@dataclass(frozen=True, slots=True)
class Refusal:
    """A try that failed: its error, whether another may help, and the server's `Retry-After`."""

    error: DarkroomError
    again: bool
    told: float | None = None


async def refusal(answer: Answer, attempts: Attempts) -> Refusal:
    """Read the answer to a request that failed."""
    body = b""
    async with aclosing(answer.pieces()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) >= answers.MOST_OF_AN_ERROR:
                break
    found = answers.problem(answer.status, answer.headers, body)
    known = answers.is_problem(answer.headers)
    return Refusal(
        request_error(found, attempts.request_id, attempts.tried),
        again(
            answer.status,
            answer.headers,
            is_problem=known,
            own_deadline=attempts.seconds is not None,
        ),
        retry_after(answer.headers),
    )


async def wait_or_raise(wire: Wire, attempts: Attempts, failed: Refusal) -> None:
    """Wait before the next try; raises the error if there is none."""
    seconds = attempts.pause(failed.told) if failed.again else None
    if seconds is None:
        raise failed.error
    await wire.pause(seconds)


async def tried(
    wire: Wire,
    call: Call,
    attempts: Attempts,
    seen: Callable[[Mapping[str, str]], None] | None = None,
) -> AsyncGenerator[ImageResult | Refusal, None]:
    """Send a request once; yield its records as they come, or at last what went wrong.

    `seen` gets the headers of a good answer.
    """
    try:
        async with wire.send(attempts.started(call), attempts.left()) as answer:
            if answer.status != 200:
                yield await refusal(answer, attempts)
                return
            if seen is not None:
                seen(answer.headers)
            async with aclosing(answers.records(answer.pieces())) as records:
                async for each in records:
                    attempts.left()
                    yield each
    except ConnectionFailed as error:
        yield broken(error, attempts)


async def body_of(wire: Wire, call: Call, attempts: Attempts, good: tuple[int, ...]) -> bytes:
    """Return the body of the answer to a request, after as many tries as it takes.

    `good` are the statuses that are no errors. Raises DarkroomError.
    """

    async def joined(pieces: AsyncIterator[bytes]) -> bytes:
        return b"".join([piece async for piece in pieces])

    return await _given(wire, call, attempts, good, joined)


async def saved_body(wire: Wire, call: Call, attempts: Attempts, path: Path) -> None:
    """Write the body of the answer with status 200 to a file as it comes, whole or not at all.

    Its length does not matter for memory. After a broken connection all of it is asked for again.
    Raises DarkroomError, and OSError if the file cannot be written.
    """

    async def saved(pieces: AsyncIterator[bytes]) -> None:
        with whole(path) as file:
            async for piece in pieces:
                attempts.left()
                await wire.call(file.write, piece)

    await _given(wire, call, attempts, (200,), saved)


async def _given(
    wire: Wire,
    call: Call,
    attempts: Attempts,
    good: tuple[int, ...],
    take: Callable[[AsyncIterator[bytes]], Awaitable[T]],
) -> T:
    """Return the result of `take` for the body of the answer, after as many tries as needed."""
    while True:
        try:
            async with wire.send(attempts.started(call), attempts.left()) as answer:
                if answer.status in good:
                    async with aclosing(answer.pieces()) as pieces:
                        return await take(pieces)
                failed = await refusal(answer, attempts)
        except ConnectionFailed as error:
            failed = broken(error, attempts)
        await wait_or_raise(wire, attempts, failed)


async def value_of(wire: Wire, call: Call, kind: type[T], attempts: Attempts) -> T:
    """Return the answer to a request as a typed value; raises DarkroomError."""
    return answers.decoded(await body_of(wire, call, attempts, (200, 201, 202)), kind)


def broken(error: ConnectionFailed, attempts: Attempts) -> Refusal:
    """Return a failed connection as a refusal; raises DeadlineExceeded if it took too long."""
    attempts.left()
    named = ConnectionFailed(str(error), attempts.request_id, permanent=error.permanent)
    return Refusal(named, again=not error.permanent)
