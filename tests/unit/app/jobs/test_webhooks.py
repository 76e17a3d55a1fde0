"""Webhooks: signatures of all secrets, addresses that are refused, and what each answer means."""

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.fetch.fetcher import FetchLimits
from app.fetch.pinned_network import asking
from app.jobs.store import DONE, FAILED, TO_DO
from app.jobs.webhooks import Try, WebhookSender, parse_secrets, signed
from app.urls import Address
from models.domain.errors import AddressRefused, InvalidParameter
from models.settings import Settings
from tests.network import Names, Wires
from tests.origin import Answer, Received, body, origin, redirect, silent, status

pytest.importorskip("standardwebhooks")

SECRET = bytes(range(32))
EXAMPLE = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""The secret of the example in the standard's documentation."""
LIMITS = replace(
    FetchLimits.from_settings(Settings(fetch_ports="1-65535")), read_timeout=0.5, connect_timeout=5
)


def test_each_secret_signs_as_the_standards_example() -> None:
    other = "whsec_" + base64.b64encode(bytes(32)).decode()
    sent = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, '{"test": 2432232314}'
    first, second = (signed(parse_secrets([each]), *sent) for each in (EXAMPLE, other))
    assert first == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    both = f"{first['webhook-signature']} {second['webhook-signature']}"
    assert signed(parse_secrets([EXAMPLE, other]), *sent)["webhook-signature"] == both


@pytest.mark.parametrize(
    "secret",
    [
        EXAMPLE.removeprefix("whsec_"),
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


def sent(answer: Answer, addresses: tuple[str, ...] = ("8.8.8.8",)) -> tuple[Try, list[Received]]:
    """Return the end of one try at a receiver that gives an answer, and what it received."""

    async def main() -> tuple[Try, list[Received]]:
        async with origin() as receiver:
            receiver.answers["/hook"] = answer
            names = Names({"hook.example": [addresses]})
            sender = WebhookSender(LIMITS, (SECRET,), names, Wires(), clock=lambda: 1234.5)
            tried = await sender.send(receiver.url("/hook", host="hook.example"), "msg_1", "{}")
            await sender.aclose()
            return tried, receiver.requests

    return asyncio.run(main())


def test_a_message_is_sent_with_its_signature() -> None:
    tried, [request] = sent(body(b"thanks"))
    assert tried.state == DONE
    expected = signed((SECRET,), "msg_1", 1234, "{}")
    assert expected.items() <= request.headers.items()
    assert request.headers["content-type"] == "application/json"
    assert request.headers["content-length"] == "2"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (status(204), Try(DONE, "status 204")),
        (status(410), Try(FAILED, "status 410")),
        (status(500), Try(TO_DO, "status 500")),
        (status(429, Retry_After="77"), Try(TO_DO, "status 429", 77.0)),
        (redirect("/elsewhere"), Try(TO_DO, "status 302")),
    ],
)
def test_the_status_decides(answer: Answer, expected: Try) -> None:
    tried, requests = sent(answer)
    assert tried == expected
    assert len(requests) == 1


def test_a_silent_receiver_fails() -> None:
    tried, _ = sent(silent())
    assert tried.state == TO_DO


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
def test_an_address_that_is_not_public_is_never_connected_to(address: str) -> None:
    tried, requests = sent(body(b""), ("8.8.8.8", address))
    assert tried.state == TO_DO
    assert "not public" in tried.reason
    assert requests == []


async def test_addresses_are_checked_before_a_job_is_taken() -> None:
    sender = WebhookSender(FetchLimits.from_settings(Settings()), (SECRET,))
    sender.check("https://hook.example/jobs?token=1")
    with pytest.raises(InvalidParameter, match="only http and https"):
        sender.check("ftp://hook.example/")
    with pytest.raises(AddressRefused, match="port 8080"):
        sender.check("https://hook.example:8080/")
    await sender.aclose()
    without = WebhookSender(FetchLimits.from_settings(Settings()), ())
    with pytest.raises(InvalidParameter, match="DARKROOM_WEBHOOK_SECRET"):
        without.check("https://hook.example/")
    await without.aclose()


def test_a_name_is_looked_up_at_the_cost_of_the_client() -> None:
    clients: list[str] = []

    async def resolve(_host: str, _port: int) -> Sequence[Address]:
        clients.append(asking.get())
        raise OSError("unknown")

    async def main() -> None:
        sender = WebhookSender(LIMITS, (SECRET,), resolve, Wires())
        tried = await sender.send("http://hook.example/", "msg_1", "{}", "a")
        assert tried.state == TO_DO
        await sender.aclose()

    asyncio.run(main())
    assert clients == ["a"]
