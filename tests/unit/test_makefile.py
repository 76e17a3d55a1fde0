"""`make serve` installs what runs, `make test` what is needed to develop."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def commands(target: str, tools: Path, arguments: Sequence[str] = (), **programs: str) -> str:
    """Return what make would do in a fresh checkout where only these programs stand beside it."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    for name, text in programs.items():
        path = tools / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    for name in ("sh", "grep"):
        (tools / name).symlink_to(shutil.which(name) or name)
    command = [make, "-C", str(ROOT), "--dry-run", "--always-make", "--no-print-directory", target]
    command += arguments
    environment = {**os.environ, "PATH": str(tools)}
    environment.pop("MAKEFLAGS", None)
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_serving_without_a_gpu_installs_no_tools_and_nothing_for_gpus(tmp_path: Path) -> None:
    done = commands("serve", tmp_path)
    assert "--require-hashes -r requirements.lock" in done
    assert "requirements-gpu.lock" not in done
    assert "requirements-dev.lock" not in done
    assert done.rstrip().endswith(".venv/bin/darkroom serve")


def test_serving_without_cuda_takes_torch_from_its_own_index(tmp_path: Path) -> None:
    done = commands("serve", tmp_path, arguments=["RUNTIME=requirements-cpu.lock"], uv="exit 1")
    (line,) = (each for each in done.splitlines() if "-r requirements-cpu.lock" in each)
    assert "--require-hashes -r requirements-cpu.lock --extra-index-url https://" in line
    assert "--index-strategy unsafe-best-match" in line


def test_serving_where_nvidia_smi_lists_a_gpu_installs_what_gpus_need(tmp_path: Path) -> None:
    done = commands("serve", tmp_path, nvidia_smi="echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'")
    assert "--require-hashes -r requirements-gpu.lock" in done
    assert "-r requirements.lock" not in done


def test_every_installation_of_packages_checks_hashes(tmp_path: Path) -> None:
    for number, target in enumerate(("serve", "test")):
        (folder := tmp_path / str(number)).mkdir()
        lines = [line for line in commands(target, folder).splitlines() if "pip install" in line]
        assert lines
        assert all("--require-hashes" in each or each.endswith("-e .") for each in lines)
