"""CPU limits of containers, read from files as the kernel writes them."""

from pathlib import Path

import pytest

from app.system.cpu import cpu_limit


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_quota_of_version_2_is_found_with_what_was_used_of_it(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/\n")
    write(tmp_path, "sys/fs/cgroup/cpu.max", "150000 100000\n")
    write(tmp_path, "sys/fs/cgroup/cpu.stat", "usage_usec 2500000\nuser_usec 1\n")
    limit = cpu_limit(tmp_path)
    assert limit is not None
    assert (limit.cores, limit.used()) == (1.5, 2.5)


def test_the_narrowest_of_nested_groups_counts(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/slice/unit\n")
    for group, quota in (("slice/unit", "max"), ("slice", "50000")):
        write(tmp_path, f"sys/fs/cgroup/{group}/cpu.max", f"{quota} 100000\n")
        write(tmp_path, f"sys/fs/cgroup/{group}/cpu.stat", "usage_usec 7\n")
    limit = cpu_limit(tmp_path)
    assert limit is not None
    assert limit.cores == 0.5


def test_a_quota_of_version_1_is_found_with_what_was_used_of_it(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "2:cpuacct:/a\n1:cpu:/a\n")
    write(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "200000\n")
    write(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n")
    write(tmp_path, "sys/fs/cgroup/cpuacct/a/cpuacct.usage", "3000000000\n")
    limit = cpu_limit(tmp_path)
    assert limit is not None
    assert (limit.cores, limit.used()) == (2.0, 3.0)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/self/cgroup": "0::/\n"},
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"},
        {
            "proc/self/cgroup": "1:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    ],
)
def test_without_a_quota_there_is_no_limit(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        write(tmp_path, name, text)
    assert cpu_limit(tmp_path) is None
