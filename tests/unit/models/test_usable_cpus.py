"""The CPUs of this process, with and without an affinity."""

import os

import pytest

from models.usable_cpus import usable_cpus


def test_the_affinity_decides() -> None:
    before = usable_cpus()
    try:
        os.sched_setaffinity(0, {max(before)})
        assert usable_cpus() == {max(before)}
    finally:
        os.sched_setaffinity(0, before)


def test_without_an_affinity_all_cpus_are_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert usable_cpus() == {0, 1, 2}
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpus() == {0}
