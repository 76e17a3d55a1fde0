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


@pytest.mark.parametrize("seconds", [-301, 301])
def test_a_webhook_of_another_time_is_refused(seconds: int) -> None:
    with pytest.raises(WebhookError, match="the limit is 300 s"):
        verify(BODY, headers(), SECRET, now=NOW + seconds)


def test_a_changed_body_and_another_secret_are_refused() -> None:
    with pytest.raises(WebhookError, match="no signature"):
        verify(BODY + b" ", headers(), SECRET, now=NOW)
    with pytest.raises(WebhookError, match="no signature"):
        verify(BODY, headers(secret=b"another"), SECRET, now=NOW)


@pytest.mark.parametrize("name", ["Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"])
def test_a_missing_header_is_refused(name: str) -> None:
    given = {key: value for key, value in headers().items() if key != name}
    with pytest.raises(WebhookError, match="are needed"):
        verify(BODY, given, SECRET, now=NOW)


@pytest.mark.parametrize("sent", ["now", "1e9", "٣", "9" * 5000, "-1"])
def test_a_time_that_is_none_is_refused(sent: str) -> None:
    with pytest.raises(WebhookError, match="seconds since 1970"):
        verify(BODY, headers() | {"Webhook-Timestamp": sent}, SECRET, now=NOW)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_§", "not base64!"])
def test_a_secret_that_is_none_is_named_as_such(secret: str) -> None:
    with pytest.raises(ValueError, match="whsec_ and base64"):
        verify(BODY, headers(), secret, now=NOW)


def test_a_signed_body_that_is_no_json_is_refused() -> None:
    with pytest.raises(WebhookError, match="no JSON"):
        verify(b"<", headers(b"<"), SECRET, now=NOW)
