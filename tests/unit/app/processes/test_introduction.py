"""The line at the start of a server, and the warning of one that everybody may use."""

import logging
from pathlib import Path

import pytest

from app.admission.clients import ApiKeys
from app.processes.uvicorn_server import introduce
from models.settings import Settings
from tests.in_process import served


@pytest.mark.parametrize(
    ("host", "with_keys", "warned"),
    [
        ("127.0.0.1", False, False),
        ("::1", False, False),
        ("localhost", False, False),
        ("0.0.0.0", False, True),
        ("::", False, True),
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
