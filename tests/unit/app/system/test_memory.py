"""Memory limits of containers, read from files as the kernel writes them."""

from pathlib import Path

import pytest

from app.system.memory import usable_memory


@pytest.mark.parametrize(
    ("groups", "file"),
    [("0::/a/b", "a/memory.max"), ("4:memory:/a", "memory/a/memory.limit_in_bytes")],
)
def test_the_narrowest_limit_of_a_container_counts(tmp_path: Path, groups: str, file: str) -> None:
    for name, text in (("proc/self/cgroup", groups), (f"sys/fs/cgroup/{file}", "1048576\n")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert usable_memory(tmp_path) == 1 << 20


def test_without_a_limit_the_machine_s_memory_counts(tmp_path: Path) -> None:
    whole = usable_memory(tmp_path)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert usable_memory(tmp_path) == whole > 0
