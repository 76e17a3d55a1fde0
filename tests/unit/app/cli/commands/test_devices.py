"""What `darkroom devices` shows, and where the engine of GPUs can run."""

import json

import pytest

from app.cli.parser import run
from models.exit_codes import ExitCode
from models.usable_cpus import usable_cores
from workers.engines.cuda.kernels import runs_on
from workers.supervision.gpu_discovery import count_gpus, describe_gpus


@pytest.mark.parametrize(("gpus", "serves"), [(0, True), (count_gpus() + 1, False)])
def test_devices_are_shown_with_the_reason_why_serve_leaves_them_out(
    gpus: int, serves: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["devices", "--json", "--gpus", str(gpus), "--threads", "1"])
    assert code == (ExitCode.OK if serves else ExitCode.FAILED)
    shown = json.loads(capsys.readouterr().out)
    assert bool(shown["plan"]) == serves == (not shown["refusal"])
    *_, cpu = (each for each in shown["devices"] if each["device"] == "CPU")
    assert cpu["used"] == serves
    assert usable_cores() == 1 or "1 of " in cpu["description"]
    found = [each for each in shown["devices"] if each["device"].startswith("GPU")]
    assert len(found) == max(1, len(describe_gpus()))
    assert all(each["unused"] and not each["used"] for each in found)


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ("90", ["sm_80", "sm_90"], True),
        ("89", ["sm_80", "sm_90"], True),
        ("61", ["sm_75", "sm_80"], False),
        ("120", ["sm_90"], False),
        ("120", ["sm_80", "compute_90"], True),
        ("80", ["sm_86"], False),
    ],
)
def test_kernels_run_on_their_major_from_their_minor_on(
    capability: str, built: list[str], runs: bool
) -> None:
    assert runs_on(capability, built) == runs
