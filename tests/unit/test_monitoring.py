"""Alert rules and dashboard: they are valid, and name only metrics that a server gives."""

import os
import re
import shutil
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from app.admission import Admission, Limits
from app.admission.counters import Total
from app.telemetry import collectors
from app.telemetry.collectors import GPU_READINGS, AtScrape
from app.telemetry.metrics import Metrics
from models.domain.backend import Load
from models.settings import Settings
from tests.server import ran
from tools import dashboard

FOLDER = Path(__file__).parents[2] / "docker/monitoring"
RULES = FOLDER / "alerts.yml"
NAME = re.compile(r"\bdarkroom_[a-z_]+\b")
HISTOGRAM_SAMPLES = ("_bucket", "_sum", "_count")


def given() -> set[str]:
    """Return the names of the samples that the collectors of a server give."""
    metrics = Metrics()
    admission = Admission(Limits.from_settings(Settings()))
    load = Load("cpu", 0, 0, 0.0, alive=True)
    metrics.now = AtScrape(
        lambda: load, admission, lambda: {"images": (1, Total.IMAGES)}, lambda: (), lambda: None
    )
    metrics.system = [collectors.Processes(os.getpid())]
    text = generate_latest(metrics.snapshot()).decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)", text, re.MULTILINE))
    names = {f"darkroom_{name}" for name, _, _ in GPU_READINGS} | set(types)
    histograms = [name for name, kind in types.items() if kind == "histogram"]
    return names | {name + end for name in histograms for end in HISTOGRAM_SAMPLES}


def test_alerts_and_the_dashboard_name_metrics_that_a_server_gives() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    for text, least in ((" ".join(each["expr"] for each in rules), 1), (dashboard.dashboard(), 20)):
        named = set(NAME.findall(text))
        assert len(named) > least
        assert named <= given()


def test_the_dashboard_is_what_its_program_writes() -> None:
    assert dashboard.DASHBOARD.read_text() == dashboard.dashboard(), "run `make docs`"


@pytest.mark.parametrize(
    "words", [("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")]
)
def test_prometheus_accepts_rules_and_alerts_fire(words: tuple[str, ...]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool, of the package prometheus, is not installed")
    *command, file = words
    ran(promtool, *command, FOLDER / file, folder=FOLDER)
