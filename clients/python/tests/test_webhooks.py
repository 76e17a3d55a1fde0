"""Webhooks are accepted only with a signature of the secret, and only for some minutes."""

import base64
import hashlib
import hmac

import pytest

from darkroom_client.webhooks import WebhookError, verify

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
BODY = b'{"type": "job.succeeded", "data": {"id": "j1"}}'
NOW = 1_700_000_000


def headers(body: bytes = BODY, secret: bytes = b"0123456789abcdef01234567") -> dict[str, str]:
    signed = b"msg_1.%d." % NOW + body
    digest = base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    return {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(NOW),
        "Webhook-Signature": f"v1a,other v1,{digest}",
    }


def test_the_example_of_the_standard_is_accepted() -> None:
    given = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    assert verify(b'{"test": 2432232314}', given, secret, now=1614265330) == {"test": 2432232314}


def test_a_webhook_gives_its_content() -> None:
    assert verify(BODY, headers(), SECRET, now=NOW + 100)["data"] == {"id": "j1"}


REFUSED: list[tuple[bytes, dict[str, str], int, str]] = [
    *((BODY, headers(), NOW + seconds, "the limit is 300 s") for seconds in (-301, 301)),
    (BODY + b" ", headers(), NOW, "no signature"),
    (BODY, headers(secret=b"another"), NOW, "no signature"),
    *(
        (BODY, {key: value for key, value in headers().items() if key != name}, NOW, "are needed")
        for name in headers()
    ),
    *(
        (BODY, headers() | {"Webhook-Timestamp": sent}, NOW, "seconds since 1970")
        for sent in ("now", "1e9", "٣", "9" * 5000, "-1")
    ),
    (b"<", headers(b"<"), NOW, "no JSON"),
]


@pytest.mark.parametrize(("body", "given", "now", "why"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_signed_now_with_the_secret_is_refused(
    body: bytes, given: dict[str, str], now: int, why: str
) -> None:
    with pytest.raises(WebhookError, match=why):
        verify(body, given, SECRET, now=now)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_§", "not base64!"])
def test_a_secret_that_is_none_is_named_as_such(secret: str) -> None:
    with pytest.raises(ValueError, match="whsec_ and base64"):
        verify(BODY, headers(), secret, now=NOW)
