"""Metrics of the processes of a server."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from app.telemetry import collectors
from app.telemetry.collectors import Use, process_family

ROOT = 10
MEMBER = ("python", "-P", "app.processes.member")
DECODER = ("python", "-c", "from app.decoders.child import run")


def use(pid: int, parent: int, words: Sequence[str], cpu: float, ended: float = 0.0) -> Use:
    times: dict[str, Any] = dict.fromkeys(("system", "children_system"), 0.0)
    times |= {"user": cpu, "children_user": ended}
    found = {"pid": pid, "ppid": parent, "cmdline": words, "create_time": 5.0, "num_fds": None}
    memory = SimpleNamespace(rss=1000)
    return found | {"cpu_times": SimpleNamespace(**times), "memory_info": memory}


def test_a_child_follows_its_parent_until_its_end() -> None:
    command = [sys.executable, "-c", "print('runs', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = {each["pid"]: each for each in process_family(os.getpid())}
        child.communicate(b"\n")
    assert found[child.pid]["ppid"] == os.getpid()
    assert found[child.pid]["cmdline"] == command
    assert found[child.pid]["memory_info"].rss > 1 << 20
    assert list(found).index(os.getpid()) < list(found).index(child.pid)
    assert list(process_family(child.pid)) == []


def test_a_scrape_needs_no_free_descriptor() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        assert list(process_family(os.getpid())) == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def scrapes(
    monkeypatch: pytest.MonkeyPatch, *families: Sequence[Use], root: int = ROOT
) -> Iterator[dict[str, float]]:
    """Yield the CPU seconds of each name at one scrape after the other."""
    collector = collectors.Processes(root)
    for family in families:
        monkeypatch.setattr(collectors, "process_family", lambda _, family=family: iter(family))
        samples = [sample for each in collector.collect() for sample in each.samples]
        name = "darkroom_process_cpu_seconds_total"
        yield {each.labels["process"]: each.value for each in samples if each.name == name}


def test_members_and_decoders_are_named_by_what_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    family = [
        use(ROOT, 1, ["darkroom", "serve"], 1.0),
        use(11, ROOT, [*MEMBER, "worker"], 2.0),
        use(12, ROOT, [*MEMBER, "front end 0"], 3.0),
        use(13, 12, DECODER, 4.0),
        use(14, 13, DECODER, 5.0),
        use(15, 99, ["an", "orphan"], 6.0),
    ]
    assert next(scrapes(monkeypatch, family)) == {
        "supervisor": 1.0,
        "worker": 2.0,
        "front end 0": 3.0,
        "decoders of front end 0": 9.0,
        "other": 6.0,
    }
    alone = [use(os.getpid(), 1, ["darkroom"], 1.0)]  # without a supervisor
    assert next(scrapes(monkeypatch, alone, root=os.getpid())) == {"server": 1.0}


def test_cpu_time_of_ended_decoders_stays_and_of_a_new_worker_begins_at_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    front_end = use(12, ROOT, [*MEMBER, "front end 0"], 3.0)
    before = [
        use(ROOT, 1, ["darkroom"], 1.0),
        use(11, ROOT, [*MEMBER, "worker"], 100.0),
        front_end,
        use(13, 12, DECODER, 4.0),
        use(14, 13, DECODER, 3.0),
    ]
    after = [
        use(ROOT, 1, ["darkroom"], 1.0, ended=100.0),
        use(16, ROOT, [*MEMBER, "worker"], 2.0),
        front_end,
        use(13, 12, DECODER, 4.0, ended=3.0),
    ]
    during = [each for each in before if each["pid"] != 14]
    first, missing, second = scrapes(monkeypatch, before, during, after)
    assert missing == first
    assert second == first | {"worker": 2.0}
