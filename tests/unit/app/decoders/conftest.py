"""For every test of decoder processes: none fails because the machine is busy."""

import pytest

from tests.server import PATIENCE


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes take any time to start and to report their ends."""
    monkeypatch.setattr("app.decoders.pool.EXIT_REPORT", PATIENCE)
    monkeypatch.setattr("app.decoders.process.STILL", PATIENCE)
    monkeypatch.setattr("app.decoders.process.START_WITHIN", PATIENCE)
    monkeypatch.setattr("app.decoders.process.ANSWER_WITHIN", PATIENCE)
