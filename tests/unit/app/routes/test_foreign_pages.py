"""Pages of other origins change and compute nothing, and names of others reach no loopback."""

from collections.abc import Mapping
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Scope

from app.http.request import DEPARTURE, Departure
from app.routes.middleware import METRICS_PORT, RequestLayer
from app.telemetry.metrics import Metrics
from models.settings import Settings

OWN = "localhost:8000"


def status(
    headers: Mapping[str, str],
    method: str = "POST",
    path: str = "/jobs",
    *,
    marked: bool = False,
    **settings: Any,
) -> int:
    """Return the status of the answer to a request with these headers."""
    found = [(key.lower().encode(), value.encode()) for key, value in headers.items()]
    scope: Scope = {"type": "http", "method": method, "path": path, "headers": found}
    scope[DEPARTURE] = Departure()
    if marked:
        scope[METRICS_PORT] = True
    layer = RequestLayer(FastAPI(), FastAPI(), Settings.model_validate(settings), Metrics())
    error = layer.foreign(scope)
    return 200 if error is None else error.status


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost:8000.evil.example"},
        {"Origin": ""},
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
def test_foreign_pages_change_and_compute_nothing(headers: dict[str, str], method: str) -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        assert status({"Host": OWN} | headers, method, host=host) == 403
    assert status(headers, method) == 403


@pytest.mark.parametrize(
    ("host", "headers"),
    [
        (OWN, {}),
        (OWN, {"Origin": "http://localhost:8000"}),
        (OWN, {"Origin": "http://localhost:8000", "Sec-Fetch-Site": "same-origin"}),
        ("photos.example", {"Origin": "https://photos.example"}),  # behind a proxy with TLS
        ("photos.example:443", {"Origin": "https://photos.example"}),
        ("upstream:8000", {"Origin": "https://photos.example", "Sec-Fetch-Site": "same-origin"}),
        (OWN, {"Origin": "https://friend.example", "Sec-Fetch-Site": "cross-site"}),
    ],
)
def test_own_pages_named_ones_and_programs_are_answered(host: str, headers: dict[str, str]) -> None:
    found: dict[str, Any] = {"host": "0.0.0.0"}
    assert status({"Host": host} | headers, cors_origins="https://friend.example", **found) == 200
    foreign = {"Host": host, "Origin": "https://evil.example"}
    assert status(foreign, cors_origins="*", **found) == 200


def test_links_of_other_pages_lead_here() -> None:
    assert status({"Host": OWN, "Sec-Fetch-Site": "cross-site"}, "GET", "/") == 200


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("[::1]", True),
        ("evil.example:8000", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("0.0.0.0:8000", False),
        ("192.168.1.2:8000", False),
    ],
)
def test_only_names_of_this_machine_reach_a_loopback_address(name: str, allowed: bool) -> None:
    for method in ("GET", "HEAD", "POST", "OPTIONS"):
        for host in ("127.0.0.1", "localhost", "::1"):
            assert status({"Host": name}, method, host=host) == (200 if allowed else 403)
        assert status({"Host": name}, method, host="0.0.0.0") == 200
        assert status({"Host": name}, method, allowed_hosts="*") == 200


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        ("Photos.example", "/", 200),
        ("photos.example:8000", "/", 200),
        ("10.0.0.7", "/", 200),
        ("localhost", "/", 200),
        ("evil.example", "/", 403),
        ("pod:9090", "/readyz", 200),  # health checks may use any name
        ("pod:9090", "/metrics", 403),
    ],
)
def test_a_setting_adds_names(name: str, path: str, expected: int) -> None:
    named: dict[str, Any] = {"allowed_hosts": "photos.example,10.0.0.7", "host": "0.0.0.0"}
    assert status({"Host": name}, "GET", path, **named) == expected


def test_scrapers_of_the_metrics_port_and_old_clients_may_use_any_name_or_none() -> None:
    assert status({"Host": "pod:9090"}, "GET", "/metrics", marked=True) == 200
    assert status({}, "GET") == 200  # HTTP/1.0
