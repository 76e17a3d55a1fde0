"""Finish jobs that have ended: its results are written to storage, its webhook is called.

Both are rows of the database, so a service that was killed goes on with them. Messages are signed
as Standard Webhooks (https://www.standardwebhooks.com) says, by its library, and sent to addresses
that pass the same guard as addresses of images. Redirects are not followed, because a redirect
would lead a signed message elsewhere.
"""

import asyncio
import base64
import binascii
import json
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import httpcore
import httpx

from app.fetch.fetcher import FetchLimits, retry_after
from app.fetch.pinned_network import PinnedTransport, Resolve, asking
from app.jobs.results import RESULTS
from app.jobs.store import (
    DESTINATION,
    DONE,
    FAILED,
    HOLD,
    TO_DO,
    DatabaseFailed,
    Ending,
    Job,
    JobStore,
    State,
    surviving,
)
from app.storage.storage import Storage
from app.urls import parse_url
from models.domain.errors import InvalidParameter, ServiceError, StorageFull
from models.settings import Settings
from models.version import VERSION

log = logging.getLogger("darkroom.jobs")

PREFIX = "whsec_"
"""What a secret begins with; base64 of its bytes follows."""

SHORTEST, LONGEST = 24, 64
"""Bytes of a secret, as the standard asks; the library takes any number."""

TIMEOUT = 20.0
"""Seconds of one try; the standard advises 15 to 30."""


def parse_secrets(texts: Sequence[str]) -> tuple[bytes, ...]:
    """Return the bytes of secrets; ValueError states the fault without the secret."""
    with suppress(binascii.Error):
        secrets = [base64.b64decode(each.removeprefix(PREFIX), validate=True) for each in texts]
        lengths = all(SHORTEST <= len(each) <= LONGEST for each in secrets)
        if lengths and all(each.startswith(PREFIX) for each in texts):
            return tuple(secrets)
    raise ValueError(
        f"DARKROOM_WEBHOOK_SECRET: write each secret as {PREFIX} and base64 of {SHORTEST} to "
        f"{LONGEST} random bytes, for instance {PREFIX}$(openssl rand -base64 32)"
    )


def signed(secrets: Sequence[bytes], id_: str, seconds: int, body: str) -> dict[str, str]:
    """Return the headers of a message that is sent at `seconds` since 1970.

    There is a signature for each secret, so that receivers may change theirs at any time.
    """
    from standardwebhooks import Webhook  # only servers that send webhooks load it

    moment = datetime.fromtimestamp(seconds, UTC)
    signatures = (Webhook(secret).sign(id_, moment, body) for secret in secrets)
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(signatures),
    }


@dataclass(frozen=True, slots=True)
class Try:
    """The end of a try: the state of the ending, its reason, and the seconds that the receiver
    asks to wait. A receiver that answers 410 wants no message any more.
    """

    state: str
    reason: str
    pause: float | None = None


class WebhookSender:
    """Sender of a process; `clock` returns seconds since 1970."""

    def __init__(
        self,
        limits: FetchLimits,
        secrets: tuple[bytes, ...],
        resolve: Resolve | None = None,
        network: httpcore.AsyncNetworkBackend | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limits = limits
        self._secrets = secrets
        self._clock = clock
        self._transport = PinnedTransport(limits.allowed_networks, 0, resolve, network)
        self._extensions = {"timeout": limits.timeouts}

    @classmethod
    def from_settings(cls, settings: Settings) -> "WebhookSender":
        """Return a sender with the operator's limits; ValueError says which secret is wrong."""
        limits = FetchLimits.from_settings(settings)
        return cls(limits, parse_secrets(settings.webhook_secret))

    def check(self, url: str) -> None:
        """Raise InvalidParameter or AddressRefused for an address that is never sent to.

        The address that a name has is checked when it is connected to.
        """
        if not self._secrets:
            raise InvalidParameter.of(
                "webhook",
                "this server sends none, because it has no secret to sign them with; its "
                "operator sets DARKROOM_WEBHOOK_SECRET",
            )
        self._limits.check(parse_url(url))

    async def send(self, url: str, id_: str, body: str, client: str = "") -> Try:
        """Try to deliver a message in JSON once; it has the same `id_` at every try.

        `client` is the client whose share of all lookups of names the message takes.
        """
        token = asking.set(client)
        try:
            self.check(url)
            async with asyncio.timeout(TIMEOUT):
                return await self._sent(parse_url(url), id_, body)
        except ServiceError as error:
            return Try(TO_DO, error.detail)
        except TimeoutError:
            return Try(TO_DO, f"no answer within {TIMEOUT:g} seconds")
        except httpx.HTTPError as error:
            return Try(TO_DO, f"no connection, or it broke ({type(error).__name__})")
        finally:
            asking.reset(token)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def _sent(self, url: httpx.URL, id_: str, body: str) -> Try:
        headers = {
            "User-Agent": f"darkroom/{VERSION}",
            "Content-Type": "application/json",
            "Connection": "close",
            **signed(self._secrets, id_, int(self._clock()), body),
        }
        request = httpx.Request(
            "POST", url, headers=headers, content=body, extensions=self._extensions
        )
        async with aclosing(await self._transport.handle_async_request(request)) as reply:
            status = reply.status_code
            gone = status == httpx.codes.GONE
            state = DONE if 200 <= status < 300 else FAILED if gone else TO_DO
            return Try(state, f"status {status}", retry_after(reply.headers))


LOOK = 1.0
"""Seconds between two looks for jobs that have ended."""

AT_ONCE = 64
"""Endings that one process works on at a time."""

AGAIN = 5.0
"""Seconds after which an ending is tried again whose files or database failed."""

PAUSES = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
"""Seconds before each further try, as Standard Webhooks advises; after the last there is none."""

LONGEST_PAUSE = 86400.0
"""Seconds that a receiver may ask to wait with `Retry-After`."""


@dataclass
class Endings:
    """Works on the endings of all jobs; `results` returns the records of a job."""

    store: JobStore
    results: Callable[[Job], AsyncGenerator[bytes, None]]
    storage: Storage
    sender: WebhookSender

    async def run(self) -> None:
        """Work until this is cancelled."""
        working = set[asyncio.Task[None]]()
        async with asyncio.TaskGroup() as group:
            while True:
                claimed: list[Ending] = []
                with surviving("a look at the endings of jobs"):
                    claimed = await self.store.claim_endings(AT_ONCE - len(working))
                for ending in claimed:
                    task = group.create_task(self._end(ending))
                    working.add(task)
                    task.add_done_callback(working.discard)
                await asyncio.sleep(LOOK)

    async def _end(self, ending: Ending) -> None:
        """Try an ending once and record the result; a fault of ours stops no further ending.

        An ending whose result the database does not take is claimed again after HOLD seconds.
        """
        holding = asyncio.create_task(self._hold(ending))
        try:
            job = await self.store.find(ending.job)
            if job is not None:  # a sweep removes the endings of jobs that are gone
                await (self._write if ending.kind == DESTINATION else self._send)(ending, job)
        except (DatabaseFailed, OSError) as error:
            log.warning("the %s of job %s waits: %s", ending.kind, ending.job, error)
            with suppress(DatabaseFailed, OSError):
                reason = "the server's files or database failed"
                await self.store.postpone(ending, AGAIN, reason, counts=False)
        except Exception as error:
            log.error("the %s of job %s failed", ending.kind, ending.job, exc_info=error)
            with suppress(DatabaseFailed, OSError):
                await self._again(ending, "a fault of the server; its log has the cause", None)
        finally:
            holding.cancel()

    async def _hold(self, ending: Ending) -> None:
        """Hold an ending that takes long, so that no further process begins it."""
        while True:
            await asyncio.sleep(HOLD / 4)
            with suppress(DatabaseFailed, OSError):
                await self.store.postpone(ending, HOLD, "in work")

    async def _write(self, ending: Ending, job: Job) -> None:
        """Write the results as a file; a repeated write gives the same bytes."""
        finish = self.store.finish
        if job.state is State.EXPIRED:
            await finish(ending, FAILED, "the results expired before they were written")
            return
        try:
            target = self.storage.writable(ending.target).below(RESULTS)
            async with aclosing(self.results(job)) as results:
                await self.storage.write(target, results)
        except DatabaseFailed:
            raise
        except ServiceError as error:
            # A webhook waits for this, and must not wait for days: neither where another try cannot
            # help, nor where it is to tell that the job failed for want of room.
            full = job.state is State.FAILED and isinstance(error, StorageFull)
            if full or isinstance(error, InvalidParameter):
                await finish(ending, FAILED, error.detail)
            else:
                await self._again(ending, error.detail, None)
        else:
            await finish(ending, DONE, f"{job.done} records are in {target}")

    async def _send(self, ending: Ending, job: Job) -> None:
        tried = await self.sender.send(ending.target, f"msg_{job.id}", message(job), job.client)
        if tried.state == TO_DO:
            await self._again(ending, tried.reason, tried.pause)
        else:
            await self.store.finish(ending, tried.state, tried.reason)

    async def _again(self, ending: Ending, reason: str, pause: float | None) -> None:
        """Try again later, with a tenth of jitter, or give up."""
        if ending.attempts >= len(PAUSES):
            log.warning("gave up the %s of job %s: %s", ending.kind, ending.job, reason)
            await self.store.finish(ending, FAILED, reason)
            return
        usual = PAUSES[ending.attempts] * (1 + random.random() / 10)  # noqa: S311 (jitter)
        asked = min(pause or 0.0, LONGEST_PAUSE)
        await self.store.postpone(ending, max(usual, asked), reason)


def message(job: Job) -> str:
    """Return the JSON of a webhook, which is the same at every try: its type, the time at which the
    job ended, and counts.
    """
    ended = datetime.fromtimestamp(round(job.finished or job.created, 3), UTC)
    state = job.state
    if state is State.EXPIRED:  # since it ended
        whole = State.SUCCEEDED if job.done == job.total else State.CANCELLED
        state = State.FAILED if job.problem is not None else whole
    succeeded = job.done - job.failed
    items = {"total": job.total, "done": job.done, "succeeded": succeeded, "failed": job.failed}
    data = {
        "id": job.id,
        "state": state.value,
        "operation": job.operation,
        "items": items,
        "results": f"/jobs/{job.id}/results",
    }
    text = {"type": f"job.{state.value}", "timestamp": ended.isoformat(), "data": data}
    return json.dumps(text, separators=(",", ":"))
