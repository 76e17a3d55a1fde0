"""`GET /debug/batches` and API keys."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.requests import Request

from app.admission.clients import ApiKeys
from app.admission.counters import Rate
from app.admission.permit import Limits
from app.admission.permits import Admission
from app.routes.debug import debug_batches
from app.service import Service
from models.domain.batch_record import BatchRecord
from models.domain.errors import RateLimited, Unauthorized
from models.settings import Settings

BURST = 3


class KeyedService:
    """The parts of a service that the route uses, with one API key and a rate limit."""

    def __init__(self, file: Path) -> None:
        file.write_text("alice:correct\n")
        self.keys = ApiKeys(file)
        self.settings = Settings(debug_batches=10)
        limits = Limits(images=2, bytes=1000, arriving=1000)
        self.admission = Admission(limits, rate=Rate(0.001, BURST))

    async def batches(self, _n: int) -> list[BatchRecord]:
        """Return no batches."""
        return []


def ask(service: KeyedService, key: bytes) -> int:
    """Return the status of the answer to a request with this key."""
    headers = [(b"x-api-key", key)]
    scope: dict[str, Any] = {"type": "http", "headers": headers, "client": ("192.0.2.1", 1)}
    answering = debug_batches(Request(scope), cast(Service, service), 50)
    return asyncio.run(answering).status_code


def test_wrong_keys_are_charged_to_the_address_until_the_rate_limit_refuses_it(
    tmp_path: Path,
) -> None:
    service = KeyedService(tmp_path / "keys")
    for number in range(BURST):
        with pytest.raises(Unauthorized):
            ask(service, b"guess %d" % number)
    with pytest.raises(RateLimited):
        ask(service, b"one more")


def test_right_keys_are_not_charged(tmp_path: Path) -> None:
    service = KeyedService(tmp_path / "keys")
    assert [ask(service, b"correct") for _ in range(2 * BURST)] == [200] * (2 * BURST)
