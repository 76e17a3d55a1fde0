"""Signatures of Standard Webhooks (https://www.standardwebhooks.com): version 1, HMAC-SHA256."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"
"""What a secret begins with; base64 of its bytes follows."""

SHORTEST, LONGEST = 24, 64
"""Bytes of a secret, as the standard asks."""


def parse_secrets(texts: Sequence[str]) -> tuple[bytes, ...]:
    """Return the bytes of secrets; ValueError says what is wrong, without the secret."""
    return tuple(_parsed(text) for text in texts)


def headers(secrets: Sequence[bytes], id_: str, seconds: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message that is sent at `seconds` since 1970.

    There is one signature for each secret, so that receivers may change theirs at any time.
    """
    signed = b".".join((id_.encode(), str(seconds).encode(), body))
    digests = (hmac.new(secret, signed, hashlib.sha256).digest() for secret in secrets)
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(d).decode()}" for d in digests),
    }


def _parsed(text: str) -> bytes:
    encoded = text.removeprefix(PREFIX)
    try:
        secret = base64.b64decode(encoded, validate=True) if encoded != text else b""
    except binascii.Error:
        secret = b""
    if not SHORTEST <= len(secret) <= LONGEST:
        raise ValueError(
            f"DARKROOM_WEBHOOK_SECRET: write each secret as {PREFIX} and base64 of {SHORTEST} to "
            f"{LONGEST} random bytes, for instance {PREFIX}$(openssl rand -base64 32)"
        )
    return secret
