"""A call as a request: its client and its deadline."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.admission.semaphore import FairSemaphore
from app.grpc_service.calls import client_of_peer, scope_of


def scope(seconds: float | None, *metadata: tuple[str, str | bytes]) -> dict[str, Any]:
    context = SimpleNamespace(
        invocation_metadata=lambda: metadata,
        time_remaining=lambda: seconds,
        peer=lambda: "ipv4:192.0.2.7:99",
    )
    return dict(scope_of("/a", context, cast(Any, None), FairSemaphore(2)))


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        ("ipv4:127.0.0.1:80", ("127.0.0.1", 80)),
        ("ipv6:%5B::1%5D:80", ("::1", 80)),
        ("ipv6:[fe80::1%25eth0]:80", ("fe80::1%eth0", 80)),
        ("unix:", None),
        ("unknown", None),
    ],
)
def test_the_client_is_the_peer(peer: str, client: tuple[str, int] | None) -> None:
    assert client_of_peer(peer) == client


@pytest.mark.parametrize(
    ("seconds", "given", "deadline"),
    [
        (2.5, None, b"2500"),
        (0.0001, None, b"1"),
        (None, None, None),
        (None, "70", b"70"),
        (2.5, "70", b"70"),
        (2.5, "9000", b"2500"),
        (2.5, "soon", b"soon"),  # refused as it is over HTTP
        (2.5, "9" * 5000, b"9" * 5000),  # so is this; Python makes no number of it
        (3.6e11, None, b"999999999999"),  # 99999999 hours, the latest deadline of gRPC
    ],
)
def test_the_earlier_deadline_counts(
    seconds: float | None, given: str | None, deadline: bytes | None
) -> None:
    metadata = [("x-deadline-ms", given)] if given is not None else []
    headers = scope(seconds, *metadata)["headers"]
    found = [value for name, value in headers if name == b"x-deadline-ms"]
    assert found == ([] if deadline is None else [deadline])


def test_metadata_are_headers() -> None:
    found = scope(None, ("x-api-key", "secret"), ("a-bin", b"\xff"))
    assert (b"x-api-key", b"secret") in found["headers"]
    assert (b"a-bin", b"\xff") in found["headers"]
    assert found["client"] == ("192.0.2.7", 99)
