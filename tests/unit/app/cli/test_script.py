"""The environment that the command line sets for the thread pools of all processes."""

import os
import subprocess
import sys

import pytest

SHOWN = "import app.cli.script, os; print(os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "None")],
)
def test_threads_of_openmp_poll_little_unless_the_user_says_how_much(
    given: dict[str, str], spins: str
) -> None:
    own = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}
    environment = {name: value for name, value in os.environ.items() if name not in own}
    told = subprocess.run(
        [sys.executable, "-c", SHOWN],
        env={**environment, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == spins
