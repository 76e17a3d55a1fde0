"""The numbers of spare workers, from the supervisor to a scrape."""

from pathlib import Path

import pytest

from app.telemetry import spare_workers
from app.telemetry.metrics import METRICS_FOLDER
from app.telemetry.spare_workers import SpareWorkers
from app.telemetry.system_collectors import system_collectors


def scraped(collector: SpareWorkers) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["pool"], sample.labels["state"]): sample.value
        for family in collector.collect()
        for sample in family.samples
    }


def test_a_scrape_gives_the_numbers_that_were_written_last(tmp_path: Path) -> None:
    collector = SpareWorkers(str(tmp_path))
    assert scraped(collector) == {}
    spare_workers.write(str(tmp_path), {"gpu 0": 2}, {"gpu 0": 1})
    spare_workers.write(str(tmp_path), {"gpu 0": 2}, {"gpu 0": 2})
    assert scraped(collector) == {("gpu 0", "wanted"): 2, ("gpu 0", "ready"): 2}


def test_a_folder_that_cannot_be_written_does_not_stop_the_supervisor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spare_workers.write(str(tmp_path / "missing"), {"cpu": 1}, {})
    assert "could not be written" in caplog.text


def test_only_a_server_of_several_processes_gives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given() -> bool:
        return any(isinstance(each, SpareWorkers) for each in system_collectors(False))

    monkeypatch.delenv(METRICS_FOLDER, raising=False)
    assert not given()
    monkeypatch.setenv(METRICS_FOLDER, str(tmp_path))
    assert given()
