"""The CPUs of this process, with and without an affinity."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from models.usable_cpus import usable_cores, usable_cpus


def test_without_an_affinity_all_cpus_are_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert usable_cpus() == {0, 1, 2}
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpus() == {0}


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/", {"cpu.max": "250000 100000"}, 2),
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", {"cpu.max": "2500000 100000"}, 8),
        ("0::/", {"cpu.max": ""}, 8),
        ("0::/", {}, 8),
        ("0::/pod/one", {"pod/cpu.max": "300000 100000", "pod/one/cpu.max": "max 100000"}, 3),
        ("0::/../elsewhere", {"cpu.max": "400000 100000"}, 4),
        ("0::/Größe", {"Größe/cpu.max": "200000 100000"}, 2),
        ("0::/a:b", {"a:b/cpu.max": "200000 100000"}, 2),
    ],
)
def test_a_quota_leaves_fewer_cores(
    membership: str,
    files: Mapping[str, str],
    cores: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(8)})
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"5:memory:/docker/abc\n{membership}\n")
    for name, content in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    assert usable_cores(tmp_path) == cores
