"""Answer images by servers: forms of many images, on several connections, as the servers allow.

A server that is saturated says when to ask again (429 and 503 with `Retry-After`); then only the
images that it did not answer are sent again. Records are those of the engine in this process.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

import httpx
import msgspec

from app.bulk.engines.backoff import Backoff, is_temporary, told_seconds
from app.bulk.engines.engine import Finished, Task
from app.bulk.engines.reading import Read, Reader
from app.bulk.engines.remote_requests import RemoteWork, form_of
from app.bulk.errors import EngineLost, WrongUsage
from models.domain.errors import ServiceError

CONNECTIONS = 8
"""Requests at a time to each server: as many as keep a GPU busy with forms of 16 photos."""

DEADLINE = 120.0
"""Seconds in which a server has to answer a request; it is told by `X-Deadline-Ms`."""

LINES = ("application/x-ndjson", "application/jsonl")
"""Media types of answers with a record for each image."""

PATIENCE = 600.0
"""Seconds for which the same images are asked for again before the command ends."""


async def start(servers: Sequence[str], work: RemoteWork, key: str | None, limit: int) -> "Remote":
    """Connect to servers; WrongUsage where one is no server of Darkroom or has other labels.

    `key` is the API key, `limit` the largest number of bytes of an image in an archive.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    most = httpx.Limits(max_connections=CONNECTIONS * len(servers))
    client = httpx.AsyncClient(
        headers=headers, limits=most, timeout=DEADLINE + 10, trust_env=False, follow_redirects=False
    )
    engine = Remote(client, servers, work, limit)
    try:
        await engine.begin()
    except BaseException:
        await client.aclose()
        raise
    return engine


class Remote:
    """Engine on `servers`, which share the requests."""

    def __init__(
        self, client: httpx.AsyncClient, servers: Sequence[str], work: RemoteWork, limit: int
    ) -> None:
        self._client, self._work, self._limit = client, work, limit
        self._servers = itertools.cycle([each.rstrip("/") for each in servers])
        self._all = [each.rstrip("/") for each in servers]
        self._slots = CONNECTIONS * len(servers)
        self.identity: Mapping[str, object] | None = None

    async def begin(self) -> None:
        """Ask every server which network it has."""
        found = [await self._identity(each) for each in self._all]
        if any(each != found[0] for each in found):
            raise WrongUsage("--server: the servers have different networks, weights or labels")
        self.identity = found[0]

    async def answers(self, tasks: Iterator[Task]) -> AsyncGenerator[list[Finished], None]:
        """Yield the answers of all tasks, in their order, a request at a time."""
        reader = Reader(tasks, self._limit)
        under_way: deque[asyncio.Future[list[Finished]]] = deque()
        has_more = True
        try:
            while has_more or under_way:
                while has_more and len(under_way) < self._slots:
                    chunk = await asyncio.to_thread(reader.chunk)
                    has_more = bool(chunk)
                    if chunk:
                        under_way.append(asyncio.ensure_future(self._answered(chunk)))
                if under_way:
                    yield await under_way[0]
                    under_way.popleft()
        finally:
            for each in under_way:
                each.cancel()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _identity(self, server: str) -> Mapping[str, object] | None:
        try:
            answer = await self._client.get(f"{server}/models")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise WrongUsage(
                f"--server: {server} cannot be reached: {reason}; `darkroom health {server}` "
                "tells more"
            ) from None
        if answer.status_code != 200:
            raise WrongUsage(f"--server: {server} answers GET /models with {answer.status_code}")
        try:
            return self._work.identity(msgspec.json.decode(answer.content))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise WrongUsage(
                f"--server: {server} answers GET /models otherwise than Darkroom does"
            ) from None

    async def _answered(self, chunk: list[Read]) -> list[Finished]:
        """Return the records of a chunk; ask again for the images that have none yet."""
        found: dict[int, Finished] = {}
        backoff = Backoff(PATIENCE)
        for read in chunk:
            if isinstance(error := read.item.content, ServiceError):
                made = {"status": "error", "error": {"code": error.code, "detail": error.detail}}
                found[read.task.index] = await self._work.finished(read.task, made)
        while left := [each for each in chunk if each.task.index not in found]:
            wait = await self._ask(left, found, backoff)
            if wait is not None and not await backoff.wait(wait):
                raise EngineLost(
                    f"no server has answered image {left[0].task.index} within {PATIENCE:.0f} s: "
                    f"{backoff.reason}; the same command goes on there"
                )
        return [found[each.task.index] for each in chunk]

    async def _ask(
        self, left: list[Read], found: dict[int, Finished], backoff: Backoff
    ) -> float | None:
        """Send one request; add its final records. Return the seconds to wait if some are left."""
        server = next(self._servers)
        headers = {"Accept": "application/x-ndjson", "X-Deadline-Ms": str(int(DEADLINE * 1000))}
        form = form_of(left, self._work.options)
        try:
            answer = await self._client.post(server + self._work.path, files=form, headers=headers)
        except httpx.HTTPError as error:
            backoff.reason = f"{server}: {error!r}"
            return 0.0
        if not answer.headers.get("Content-Type", "").startswith(LINES):
            if is_temporary(answer.status_code):
                backoff.reason = f"{server} answers {answer.status_code}: {_problem(answer)[1]}"
                return told_seconds(answer.headers.get("Retry-After"))
            return await self._refused(answer, left, found)
        for line in answer.content.splitlines():
            try:
                made: dict[str, Any] = msgspec.json.decode(line)
                task, problem = left[made["index"]].task, made.get("error") or {}
                again = problem.get("status") in (429, 503)
                again = again or problem.get("code") == "deadline_exceeded"
            except (ValueError, LookupError, TypeError, AttributeError):  # a proxy lost the server
                backoff.reason = f"{server}: its answer broke off, or is none of Darkroom"
                continue
            if again:
                backoff.reason = f"{server}: {problem.get('detail')}"
            else:
                found[task.index] = await self._work.finished(task, made)
        return None if all(each.task.index in found for each in left) else 0.0

    async def _refused(
        self, answer: httpx.Response, left: list[Read], found: dict[int, Finished]
    ) -> float | None:
        """Take a request apart that is refused as a whole, so that each image gets its own error.

        WrongUsage if the refusal cannot be about the images.
        """
        code, detail = _problem(answer)
        if answer.status_code in (401, 403, 404, 405) or code == "invalid_parameter":
            raise WrongUsage(f"--server: it answers {answer.status_code}: {detail}")
        if len(left) > 1:
            for each in left:
                found[each.task.index] = (await self._answered([each]))[0]
            return None
        made = {"status": "error", "error": {"code": code, "detail": detail}}
        found[left[0].task.index] = await self._work.finished(left[0].task, made)
        return None


def _problem(answer: httpx.Response) -> tuple[str, str]:
    """Return the code and the text of a problem; proxies answer with other bodies."""
    try:
        body = msgspec.json.decode(answer.content)
        return str(body["code"]), str(body["detail"])
    except (ValueError, KeyError, TypeError):
        return "http_error", f"the server answered with {answer.status_code}"
