"""Check that a webhook comes from the Darkroom server that has the same secret.

The scheme is Standard Webhooks 1.0: https://www.standardwebhooks.com.
"""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from darkroom_client.errors import DarkroomError

TOLERANCE = 300.0
"""Seconds by which the time of a webhook may differ from this machine's."""

PREFIX = "whsec_"


class WebhookError(DarkroomError):
    """A webhook is not signed with the secret, or it is too old, or its body is no JSON."""


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secret: str,
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> Any:
    """Return the JSON of a webhook; raises WebhookError for one that cannot be trusted.

    `body` is the body as it came, byte for byte, and `secret` is `whsec_` and base64. `now` is the
    time in seconds since 1970, by default this machine's. Remember the header `webhook-id`: a
    webhook that is sent again has the same one.
    """
    given = {name.lower(): value for name, value in headers.items()}
    id_, sent, signatures = (
        given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")
    )
    if not (id_ and sent and signatures):
        raise WebhookError("webhook-id, webhook-timestamp and webhook-signature are needed")
    _check_time(sent, time.time() if now is None else now, tolerance)
    signed = b".".join((id_.encode(), sent.encode(), body))
    digest = hmac.new(key(secret), signed, hashlib.sha256).digest()
    expected = b"v1," + base64.b64encode(digest)
    found = [hmac.compare_digest(expected, each.encode()) for each in signatures.split()]
    if not any(found):
        raise WebhookError("no signature of the webhook was made with this secret")
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WebhookError(f"the body is no JSON: {error}") from None


def key(secret: str) -> bytes:
    """Return the bytes of a secret; raises ValueError for one that is none."""
    try:
        found = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not found:
        raise ValueError(f"the secret of webhooks is {PREFIX} and base64")
    return found


def _check_time(sent: str, now: float, tolerance: float) -> None:
    if not (sent.isascii() and sent.isdigit() and len(sent) < 16):
        raise WebhookError(f"webhook-timestamp is {sent[:20]!r}: seconds since 1970 are needed")
    if abs(now - int(sent)) > tolerance:
        raise WebhookError(
            f"the webhook was sent {now - int(sent):.0f} s ago; the limit is {tolerance:.0f} s"
        )
