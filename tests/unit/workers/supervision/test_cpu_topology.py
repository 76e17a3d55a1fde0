"""CPUs, cores and devices by the files of a made-up machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from models.usable_cpus import usable_cpus
from workers.supervision.cpu_topology import cores_of, divided, near_cpus, parse_cpus

NO_FILES = Path("/nonexistent")


def _siblings(root: Path, cpus: int, offset: int) -> None:
    """Write files in which CPU n and CPU n + `offset` are threads of one core."""
    for cpu in range(cpus):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        first = cpu % offset
        (folder / "thread_siblings_list").write_text(f"{first},{first + offset}\n")


def test_lists_of_the_kernel_are_read() -> None:
    assert parse_cpus("0-3,8\n") == {0, 1, 2, 3, 8}
    assert parse_cpus("\n") == set()


def test_hyperthreads_are_one_core(tmp_path: Path) -> None:
    _siblings(tmp_path, 8, 4)
    assert cores_of(range(8), tmp_path) == [{0, 4}, {1, 5}, {2, 6}, {3, 7}]


def test_a_core_has_only_the_cpus_that_may_be_used(tmp_path: Path) -> None:
    _siblings(tmp_path, 8, 4)
    assert cores_of([1, 2, 6], tmp_path) == [{1}, {2, 6}]


def test_without_files_each_cpu_is_a_core_near_to_nothing() -> None:
    assert cores_of([0, 1], NO_FILES) == [{0}, {1}]
    assert near_cpus("0000:3b:00.0", NO_FILES) == set()


def test_the_near_cpus_of_a_device_are_those_of_its_node(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "local_cpulist").write_text("4-7\n")
    assert near_cpus("0000:3B:00.0", tmp_path) == {4, 5, 6, 7}


@pytest.mark.parametrize("near", [[frozenset[int]()] * 2, [frozenset(range(8))] * 2])
def test_devices_of_one_node_divide_its_cores_evenly(
    tmp_path: Path, near: list[frozenset[int]]
) -> None:
    _siblings(tmp_path, 8, 4)
    shares = [frozenset({0, 4, 1, 5}), frozenset({2, 6, 3, 7})]
    assert divided(cores_of(range(8), tmp_path), near) == shares


def test_each_device_gets_the_cores_of_its_own_node() -> None:
    cores = cores_of(range(8), NO_FILES)
    near = [frozenset({4, 5, 6, 7}), frozenset({0, 1, 2, 3})]
    assert divided(cores, near) == near


def test_cores_near_to_no_device_are_divided_too() -> None:
    cores = cores_of(range(8), NO_FILES)
    both = frozenset({4, 5, 6, 7})
    first, second = divided(cores, [both, both]) or []
    assert (len(first), len(second)) == (4, 4)
    assert (len(first & both), len(second & both)) == (2, 2)


def test_a_device_with_fewer_near_cores_gets_more_of_the_others() -> None:
    cores = cores_of(range(8), NO_FILES)
    first, second = divided(cores, [frozenset({0}), frozenset({1, 2, 3})]) or []
    assert (len(first), len(second)) == (4, 4)


def test_more_devices_than_cores_are_not_divided() -> None:
    assert divided(cores_of([0, 1], NO_FILES), [frozenset()] * 3) is None


def test_a_device_with_too_few_usable_cpus_of_its_own_node_is_not_left_with_these() -> None:
    nodes = [frozenset(range(16)), frozenset(range(16, 32))]
    assert divided(cores_of(range(17), NO_FILES), nodes) is None
    shares = divided(cores_of(range(22), NO_FILES), nodes)
    assert shares == [frozenset(range(16)), frozenset(range(16, 22))]


def test_all_threads_of_a_process_are_bound() -> None:
    last = max(usable_cpus())
    program = (
        "import os, threading\n"
        "from workers.supervision.cpu_topology import bind\n"
        "go = threading.Event()\n"
        "threading.Thread(target=go.wait, daemon=True).start()\n"
        f"bind({{{last}}})\n"
        "print(*[open(f'/proc/self/task/{t}/status').read().split('Cpus_allowed_list:')[1]"
        ".split()[0] for t in os.listdir('/proc/self/task')])\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert told.stdout.split() == [str(last), str(last)], told.stderr
