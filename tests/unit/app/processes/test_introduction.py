"""The line at the start of a server, the warning of an open server, and a start that fails."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from fastapi import FastAPI

from app.admission.clients import ApiKeys
from app.processes import uvicorn_server
from app.processes.uvicorn_server import introduce
from models.settings import Settings
from tests.in_process import served


@pytest.mark.parametrize(
    ("host", "with_keys", "warned"),
    [
        ("::1", False, False),
        ("localhost", False, False),
        ("0.0.0.0", False, True),
        ("192.0.2.7", False, True),
        ("0.0.0.0", True, False),
    ],
)
async def test_a_server_says_what_it_serves_with_and_warns_where_everybody_may_use_it(
    host: str, with_keys: bool, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "darkroom.server")

    async with served() as app:
        service = app.state.service
        file = tmp_path / "keys"
        file.write_text("a:secret\n")
        service.keys = ApiKeys(file) if with_keys else None
        introduce(service, Settings(host=host, port=8080, api_keys_file=file))
    line = caplog.records[0].getMessage()
    keys = str(tmp_path / "keys") if with_keys else "none"
    assert line == f"device fake; networks resnet18 (fake); address {host}:8080; API keys {keys}"
    assert [each.levelname for each in caplog.records[1:]] == ["WARNING"] * warned


async def test_a_start_that_fails_leaves_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[str]()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            seen.append("left")

    monkeypatch.setattr(uvicorn_server, "warm_up", AsyncMock(side_effect=OSError("a fault")))
    server = uvicorn_server.Server(FastAPI(lifespan=lifespan), Settings())
    with pytest.raises(OSError, match="a fault"):
        await server.serve([])
    assert seen == ["left"]
