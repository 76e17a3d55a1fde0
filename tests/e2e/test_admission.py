"""Admission: API keys, rates, refused requests, and the limits that /metrics shows."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from app.admission.counters import Rate, Total
from models.domain.errors import Overloaded
from tests.e2e.conftest import Running, running
from tests.pictures import jpeg
from tests.server import until

JPEG = {"content-type": "image/jpeg"}


def test_the_client_behind_a_trusted_proxy_is_the_one_that_admission_knows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = []
    caplog.set_level(logging.INFO, "darkroom.access")
    with running(trusted_proxies="127.0.0.0/8") as started:
        admission = started.app.state.service.admission

        def enter(client: str, *_more: object, **_options: object) -> None:
            seen.append(client)
            raise Overloaded("no", 1.0)

        admission.enter = enter
        headers = JPEG | {"x-forwarded-for": "192.0.2.9"}
        reply = started.client.post("/filter?name=invert", content=jpeg(), headers=headers)
    assert seen == ["192.0.2.9"]
    clients = [vars(each)["client"] for each in caplog.records if vars(each).get("status") == 503]
    assert clients == ["192.0.2.9"]
    assert json.loads(reply.content)["detail"] == "no"
    assert admission.counters.total(Total.IMAGES) == 0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("alice:one\nbob:two\neve:five\n!carol:three\n")
    with running(api_keys_file=str(keys), rate_limit="1/8") as started:
        admission = started.app.state.service.admission
        assert admission.rate == Rate(1.0, 8.0)
        admission.rate = Rate(0.001, 8.0)  # no token comes while these tests run
        yield started


def ask(
    server: Running, key: str | None, n_images: int = 1
) -> tuple[int, dict[str, str], dict[str, Any]]:
    headers = JPEG if key is None else JPEG | {"authorization": f"Bearer {key}"}
    if n_images == 1:
        reply = server.client.post("/filter?name=invert", content=jpeg(), headers=headers)
    else:
        files = [("files", (f"{n}.jpg", jpeg(n), "image/jpeg")) for n in range(n_images)]
        headers = {"authorization": f"Bearer {key}"}
        reply = server.client.post("/filter?name=invert", files=files, headers=headers)
    problem = reply.json() if "json" in reply.headers["content-type"] else {}
    return reply.status_code, dict(reply.headers), problem


def test_images_are_taken_only_with_a_key_and_the_answer_says_how_to_send_one(
    guarded: Running,
) -> None:
    status, headers, problem = ask(guarded, None)
    assert (status, problem["code"]) == (401, "unauthorized")
    assert headers["www-authenticate"].startswith("Bearer")
    assert "X-API-Key" in problem["detail"]
    assert ask(guarded, "four")[0] == 401
    assert ask(guarded, "one")[0] == 200


def test_the_log_names_the_key_and_without_one_the_address(
    guarded: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "darkroom.access")
    ask(guarded, "one")
    ask(guarded, "four")
    until(lambda: {vars(r).get("client") for r in caplog.records} >= {"key alice", "127.0.0.1"})


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/", "/filters", "/models"])
def test_health_metrics_pages_and_catalogue_need_no_key(guarded: Running, path: str) -> None:
    assert guarded.client.get(path).status_code == 200


def test_beyond_its_rate_a_client_is_told_when_to_come_back_and_others_are_not_hurt(
    guarded: Running,
) -> None:
    assert ask(guarded, "five", n_images=8)[0] == 200
    status, headers, problem = ask(guarded, "five")
    assert (status, problem["code"]) == (429, "rate_limited")
    assert 700 <= int(headers["retry-after"]) <= 1000
    assert ask(guarded, "two")[0] == 200
    metrics = guarded.client.get("/metrics").text
    assert 'darkroom_rejections_total{reason="rate_limited"} 1.0' in metrics
    assert 'darkroom_rejections_total{reason="unauthorized"}' in metrics


def test_every_limit_stands_beside_its_use(server: Running) -> None:
    metrics = server.client.get("/metrics").text
    assert 'darkroom_limit{limit="images_in_flight"} 512.0' in metrics
    for name in (
        "images_in_flight",
        "bytes_in_flight",
        "arriving_bytes",
        "image_memory",
        "unread_bytes",
        "fetch_concurrency",
    ):
        assert f'darkroom_limit{{limit="{name}"}}' in metrics
        assert f'darkroom_in_use{{limit="{name}"}}' in metrics
    assert "darkroom_predicted_wait_seconds" in metrics
