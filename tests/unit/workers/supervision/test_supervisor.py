"""The supervisor over real processes that do nothing."""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from models.exit_codes import ExitCode
from tests.fakes import GUARD
from tests.worker_fixture import wait_until
from workers.supervision.supervisor import Child, ProcessSpec, Supervisor

LONG = 10 * GUARD
"""Seconds that a process lives unless it is ended: longer than any test waits for it."""


def member(lives: Path, name: str = "one", **orders: object) -> ProcessSpec:
    return ProcessSpec(name, "tests.supervised_child", {"lives": str(lives), **orders}, patience=10)


def lived(lives: Path) -> list[str]:
    """Return a line for every process that was started."""
    return lives.read_text().splitlines() if lives.exists() else []


def supervise(made: Supervisor, claim: Callable[[], bool]) -> int:
    """Run a supervisor, send it SIGTERM as soon as the claim holds, and return its exit code."""

    async def run() -> int:
        running = asyncio.create_task(made.run())
        await wait_until(lambda: claim() or running.done())
        if not running.done():
            signal.raise_signal(signal.SIGTERM)
        return await running

    return asyncio.run(run())


def test_a_process_that_dies_is_started_again(tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    code = supervise(Supervisor([[member(lives, code=1)]]), lambda: len(lived(lives)) >= 2)
    assert code == 0
    assert len(set(lived(lives))) >= 2


def test_the_first_restart_follows_at_once_and_the_second_after_a_pause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lives = tmp_path / "lives"
    supervise(Supervisor([[member(lives, code=1)]]), lambda: len(lived(lives)) >= 3)
    restarts = [text for text in caplog.messages if "starting it again" in text]
    assert [text.rpartition(" in ")[2] for text in restarts[:2]] == ["0 s", "0.5 s"]


def test_a_process_that_can_never_run_ends_them_all(tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    groups = [
        [member(lives, "good", seconds=LONG)],
        [member(lives, "bad", code=ExitCode.WRONG_USAGE)],
    ]
    assert supervise(Supervisor(groups), lambda: False) == ExitCode.WRONG_USAGE


def test_sigterm_ends_the_last_group_first(tmp_path: Path) -> None:
    lives, ended = tmp_path / "lives", list[int]()
    groups = [[member(lives, "worker", seconds=LONG)], [member(lives, "front", seconds=LONG)]]
    stopped: list[bool] = []
    made = Supervisor(groups, ended.append, lambda: stopped.append(True))
    assert supervise(made, lambda: len(lived(lives)) == 2) == 0
    pids = {line.split()[0]: int(line.split()[1]) for line in lived(lives)}
    assert ended == [pids["front"], pids["worker"]]
    assert stopped == [True]


def test_a_start_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lives, failures, start = tmp_path / "lives", [OSError("no memory")], Child.start

    async def sometimes(member: ProcessSpec) -> Child:
        if failures:
            raise failures.pop()
        return await start(member)

    monkeypatch.setattr(Child, "start", sometimes)
    made = Supervisor([[member(lives, seconds=LONG)]])
    assert supervise(made, lambda: len(lived(lives)) == 1) == 0
    assert not failures


def test_an_observer_that_fails_does_not_stop_the_restarts(tmp_path: Path) -> None:
    def fail(_pid: int) -> None:
        raise OSError("the disk is full")

    lives = tmp_path / "lives"
    made = Supervisor([[member(lives, code=1)]], fail)
    assert supervise(made, lambda: len(lived(lives)) >= 2) == 0


def test_nothing_is_imported_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = tmp_path / "lives"
    (tmp_path / "json.py").write_text("raise SystemExit(77)")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
    monkeypatch.chdir(tmp_path)
    made = Supervisor([[member(lives, seconds=LONG)]])
    assert supervise(made, lambda: len(lived(lives)) == 1) == 0


def test_readiness_is_announced_once_when_all_members_can_work(tmp_path: Path) -> None:
    lives, announced = tmp_path / "lives", list[int]()
    groups = [
        [member(lives, "worker", seconds=LONG)],
        [member(lives, "front", seconds=LONG)],
    ]
    made = Supervisor(groups, on_ready=lambda: announced.append(len(lived(lives))))
    assert supervise(made, lambda: bool(announced)) == 0
    assert announced == [2]


def test_nothing_is_announced_while_a_member_cannot_work(tmp_path: Path) -> None:
    lives, announced = tmp_path / "lives", list[int]()
    groups = [
        [member(lives, "worker", seconds=LONG)],
        [member(lives, "front", broken=True, code=1)],
    ]
    made = Supervisor(groups, on_ready=lambda: announced.append(1))
    assert supervise(made, lambda: len(lived(lives)) >= 3) == 0
    assert not announced


def replacing(lives: Path) -> bool:
    """Replace all members once one lives; return whether the first one has its order to leave."""
    asked = Path(f"{lives}.asked")
    if len(lived(lives)) == 1 and not asked.exists():
        asked.touch()
        signal.raise_signal(signal.SIGUSR2)
    return Path(f"{lives}.left").exists()


def pids(lives: Path) -> list[int]:
    return [int(line.split()[1]) for line in lived(lives)]


def test_sigterm_ends_a_process_that_leaves_as_well(tmp_path: Path) -> None:
    """Its patience is longer than the test waits."""
    lives, ended = tmp_path / "lives", list[int]()
    spec = replace(member(lives, seconds=LONG, stays=True), patience=LONG)
    assert supervise(Supervisor([[spec]], ended.append), lambda: replacing(lives)) == 0
    assert sorted(ended) == sorted(pids(lives))
    assert len(ended) == 2


def test_processes_that_ignore_sigterm_are_killed_also_one_that_leaves(tmp_path: Path) -> None:
    lives, ended = tmp_path / "lives", list[int]()
    spec = replace(member(lives, seconds=LONG, stays=True, deaf=True), patience=1.0)
    assert supervise(Supervisor([[spec]], ended.append), lambda: replacing(lives)) == 1
    assert sorted(ended) == sorted(pids(lives))


def test_a_process_that_was_to_replace_another_one_ends_with_the_server(tmp_path: Path) -> None:
    lives, ended = tmp_path / "lives", list[int]()
    specs = [member(lives, seconds=LONG), member(lives, seconds=LONG, silent=True)]
    made = Supervisor([[specs[0]]], ended.append, reload=lambda: [[specs[1]]])

    def starting() -> bool:
        if len(lived(lives)) == 1 and not made._rounds:
            signal.raise_signal(signal.SIGHUP)
        return len(lived(lives)) == 2

    assert supervise(made, starting) == 0
    assert sorted(ended) == sorted(pids(lives))


def test_a_process_that_leaves_is_killed_when_its_member_has_no_time_left(tmp_path: Path) -> None:
    """The round that replaces it would give it longer than the test waits."""
    lives, ended = tmp_path / "lives", list[int]()
    short = replace(member(lives, seconds=LONG, stays=True, deaf=True), patience=1.0)
    patient = replace(short, patience=LONG)
    made = Supervisor([[short]], ended.append, reload=lambda: [[patient]])

    def leaving() -> bool:
        if len(lived(lives)) == 1 and not made._rounds:
            signal.raise_signal(signal.SIGHUP)
        return Path(f"{lives}.left").exists()

    async def in_time() -> int:
        running = asyncio.create_task(made.run())
        await wait_until(leaving)
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(GUARD):
            return await running

    assert asyncio.run(in_time()) == 1
    assert sorted(ended) == sorted(pids(lives))
