import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.fetch.fetcher import FetchLimits
from app.fetch.pinned_network import asking
from app.urls import Address
from app.webhooks import Delivery, Try, WebhookSender, headers
from models.domain.errors import AddressRefused, InvalidParameter
from models.settings import Settings
from tests.network import Names, Wires
from tests.origin import Answer, Received, body, origin, redirect, silent, status

SECRET = bytes(range(32))
LIMITS = replace(
    FetchLimits.from_settings(Settings(fetch_ports="1-65535")), read_timeout=0.5, connect_timeout=5
)


def sent(answer: Answer, addresses: tuple[str, ...] = ("8.8.8.8",)) -> tuple[Try, list[Received]]:
    """Return the end of one try at a receiver that gives an answer, and what it received."""

    async def main() -> tuple[Try, list[Received]]:
        async with origin() as receiver:
            receiver.answers["/hook"] = answer
            names = Names({"hook.example": [addresses]})
            sender = WebhookSender(LIMITS, (SECRET,), names, Wires(), clock=lambda: 1234.5)
            tried = await sender.send(receiver.url("/hook", host="hook.example"), "msg_1", b"{}")
            await sender.aclose()
            return tried, receiver.requests

    return asyncio.run(main())


def test_a_message_is_sent_with_its_signature() -> None:
    tried, [request] = sent(body(b"thanks"))
    assert tried.delivery is Delivery.DELIVERED
    signed = headers((SECRET,), "msg_1", 1234, b"{}")
    assert signed.items() <= request.headers.items()
    assert request.headers["content-type"] == "application/json"
    assert request.headers["content-length"] == "2"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (status(204), Try(Delivery.DELIVERED, "status 204")),
        (status(410), Try(Delivery.GONE, "status 410")),
        (status(500), Try(Delivery.FAILED, "status 500")),
        (status(429, Retry_After="77"), Try(Delivery.FAILED, "status 429", 77.0)),
        (redirect("/elsewhere"), Try(Delivery.FAILED, "status 302")),
    ],
)
def test_the_status_decides(answer: Answer, expected: Try) -> None:
    tried, requests = sent(answer)
    assert tried == expected
    assert len(requests) == 1


def test_a_silent_receiver_fails() -> None:
    tried, _ = sent(silent())
    assert tried.delivery is Delivery.FAILED


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
def test_an_address_that_is_not_public_is_never_connected_to(address: str) -> None:
    tried, requests = sent(body(b""), ("8.8.8.8", address))
    assert tried.delivery is Delivery.FAILED
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
        tried = await sender.send("http://hook.example/", "msg_1", b"{}", "a")
        assert tried.delivery is Delivery.FAILED
        await sender.aclose()

    asyncio.run(main())
    assert clients == ["a"]
