"""Send a signed message to an address that passes the same guard as addresses of images.

Messages are signed as Standard Webhooks (https://www.standardwebhooks.com) says, by its library.
One call is one try; `app/jobs/endings.py` decides what is sent when. Redirects are not followed,
because a redirect would lead a signed message elsewhere.
"""

import asyncio
import base64
import binascii
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import httpcore
import httpx

from app.fetch.fetcher import FetchLimits, retry_after
from app.fetch.pinned_network import PinnedTransport, Resolve, asking
from app.jobs.store import DONE, FAILED, TO_DO
from app.urls import parse_url
from models.domain.errors import InvalidParameter, ServiceError
from models.settings import Settings
from models.version import VERSION

PREFIX = "whsec_"
"""What a secret begins with; base64 of its bytes follows."""

SHORTEST, LONGEST = 24, 64
"""Bytes of a secret, as the standard asks; the library takes any number."""

TIMEOUT = 20.0
"""Seconds of one try; the standard advises 15 to 30."""


def parse_secrets(texts: Sequence[str]) -> tuple[bytes, ...]:
    """Return the bytes of secrets; ValueError says what is wrong, without the secret."""
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

    There is one signature for each secret, so that receivers may change theirs at any time.
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
    """The end of one try: the state of the ending, its reason, and the seconds that the receiver
    asks to wait. A receiver that answers 410 wants no message any more.
    """

    state: str
    reason: str
    pause: float | None = None


class WebhookSender:
    """Sender of one process; `clock` returns seconds since 1970."""

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
            raise InvalidParameter(
                "webhook: this server sends none, because it has no secret to sign them with; its "
                "operator sets DARKROOM_WEBHOOK_SECRET"
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
