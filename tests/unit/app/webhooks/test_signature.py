import base64

import pytest

from app.webhooks import headers, parse_secrets

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""The secret of the example in the standard's documentation."""


def test_the_signature_is_that_of_the_standards_example() -> None:
    made = headers(
        parse_secrets([SECRET]),
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert made == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_each_secret_signs() -> None:
    other = "whsec_" + base64.b64encode(bytes(32)).decode()
    both = headers(parse_secrets([SECRET, other]), "msg", 1, b"{}")["webhook-signature"]
    each = [
        headers(parse_secrets([secret]), "msg", 1, b"{}")["webhook-signature"]
        for secret in (SECRET, other)
    ]
    assert both == " ".join(each)


@pytest.mark.parametrize(
    "secret",
    [
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_",
        "whsec_not base64 at all, whatever it is",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
    ],
)
def test_a_wrong_secret_is_refused_without_being_repeated(secret: str) -> None:
    with pytest.raises(ValueError, match="24 to 64 random bytes") as error:
        parse_secrets([secret])
    assert secret == "whsec_" or secret not in str(error.value)
