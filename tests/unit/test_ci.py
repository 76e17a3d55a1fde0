"""What checks a change: `.ci/run` and the hosted workflows name what exists."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"


def targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = re.search(r"^(make test)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert command is not None
    assert command[1] in (ROOT / ".ci" / "run").read_text().splitlines()
    assert "- run: .ci/run\n" in (WORKFLOWS / "ci.yml").read_text()


@pytest.mark.parametrize(("name", "count"), [("ci", 0), ("nightly", 5)])
def test_a_hosted_workflow_runs_targets_and_programs_that_exist(name: str, count: int) -> None:
    jobs = yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text())["jobs"].values()
    commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    made = {each.removeprefix("make ") for each in commands if each.startswith("make ")}
    programs = [each.split()[2] for each in commands if each.startswith(".venv/bin/python -m ")]
    assert made <= targets()
    assert len(programs) == count
    assert all(importlib.util.find_spec(name) is not None for name in programs)


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("github-workflows", ".github/workflows/ci.yml"),
        ("github-workflows", ".github/workflows/nightly.yml"),
        ("compose-spec", "docker-compose.yml"),
    ],
)
def test_a_file_of_another_program_fits_its_schema(schema: str, file: str) -> None:
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema, which carries the schemas, is not installed")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*command, ROOT / file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
