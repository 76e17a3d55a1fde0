"""The supervisor over real processes that do nothing."""

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from models.exit_codes import ExitCode
from tests.fakes import GUARD
from tests.worker_fixture import wait_until
from workers.supervision import supervisor
from workers.supervision.supervisor import Child, Groups, ProcessSpec, Supervisor

LONG = 10 * GUARD
"""Seconds that a process lives unless it is ended: longer than any test waits for it."""


class Lives:
    """The processes that were started, by the file in which they note that."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.ended: list[int] = []

    def spec(self, name: str = "one", patience: float = 10, **orders: object) -> ProcessSpec:
        given = {"lives": str(self.file), "seconds": LONG, **orders}
        return ProcessSpec(name, "tests.supervised_child", given, patience=patience)

    def supervisor(self, *groups: list[ProcessSpec], **named: Any) -> Supervisor:
        return Supervisor(groups, **{"on_exit": self.ended.append, **named})

    def lines(self) -> list[list[str]]:
        """Return the name, the id and the mark of each process that was started."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [line.split(" ") for line in lines]

    def __len__(self) -> int:
        return len(self.lines())

    @property
    def pids(self) -> list[int]:
        return [int(pid) for _, pid, _ in self.lines()]

    @property
    def left(self) -> list[int]:
        """Return the ids of the processes that were ordered to leave."""
        file = Path(f"{self.file}.left")
        return [*map(int, file.read_text().split())] if file.exists() else []


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path / "lives")


def holds(claim: Callable[[], bool], running: "asyncio.Task[int]") -> bool:
    return claim() or running.done()


def supervise(made: Supervisor, *claims: Callable[[], bool]) -> int:
    """Run a supervisor until each claim has held in turn, send it SIGTERM, return its exit code."""

    async def run() -> int:
        running = asyncio.create_task(made.run())
        for claim in claims:
            await wait_until(partial(holds, claim, running))
        if not running.done():
            signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(GUARD):
            return await running

    return asyncio.run(run())


def sends(number: signal.Signals) -> Callable[[], bool]:
    """Return a claim that sends a signal and holds."""

    def claim() -> bool:
        signal.raise_signal(number)
        return True

    return claim


def test_a_process_that_dies_is_started_again_at_once_and_then_after_a_pause(
    lives: Lives, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_pid: int) -> None:
        raise OSError("the disk is full")

    made = lives.supervisor([lives.spec(seconds=0, code=1)], on_exit=fail)
    assert supervise(made, lambda: len(lives) >= 3) == 0
    assert len(set(lives.pids)) >= 3
    restarts = [text for text in caplog.messages if "starting it again" in text]
    assert [text.rpartition(" in ")[2] for text in restarts[:2]] == ["0 s", "0.5 s"]


def test_a_process_that_can_never_run_ends_them_all(lives: Lives) -> None:
    bad = lives.spec("bad", seconds=0, code=ExitCode.WRONG_USAGE)
    made = lives.supervisor([lives.spec("good")], [bad])
    assert supervise(made, lambda: False) == ExitCode.WRONG_USAGE


def test_all_are_announced_once_and_sigterm_ends_the_last_group_first(lives: Lives) -> None:
    told: list[object] = []
    made = lives.supervisor(
        [lives.spec("worker")],
        [lives.spec("front")],
        on_stop=lambda: told.append("stop"),
        on_ready=lambda: told.append(len(lives)),
    )
    assert supervise(made, lambda: bool(told)) == 0
    pids = {name: int(pid) for name, pid, _ in lives.lines()}
    assert lives.ended == [pids["front"], pids["worker"]]
    assert told == [2, "stop"]


def test_a_start_that_fails_is_tried_again(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    failures, start = [OSError("no memory")], Child.start

    async def sometimes(spec: ProcessSpec) -> Child:
        if failures:
            raise failures.pop()
        return await start(spec)

    monkeypatch.setattr(Child, "start", sometimes)
    assert supervise(lives.supervisor([lives.spec()]), lambda: len(lives) == 1) == 0
    assert not failures


def test_a_process_that_gives_no_sign_of_life_is_replaced(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("BEAT", 0.02), ("WORKING", 0.2)):
        monkeypatch.setattr(supervisor, name, value)
    assert supervise(lives.supervisor([lives.spec()]), lambda: len(lives) >= 2) == 0
    assert lives.pids[0] in lives.ended
    assert lives.pids[0] != lives.pids[1]


def test_new_processes_of_all_groups_work_before_an_old_one_of_the_first_group_leaves(
    lives: Lives,
) -> None:
    made = lives.supervisor([lives.spec("one")], [lives.spec("two")])
    both, all_four = lambda: len(lives) == 2, lambda: len(lives.left) == 2
    assert supervise(made, both, sends(signal.SIGUSR2), all_four) == 0
    first = {name: int(pid) for name, pid, _ in lives.lines()[:2]}
    assert [name for name, _, _ in lives.lines()[2:]] == ["one", "two"]
    assert lives.left == [first["two"], first["one"]]


def test_sighup_replaces_processes_by_ones_with_new_orders_unless_those_are_wrong(
    lives: Lives,
) -> None:
    answers: list[Groups | ValueError] = [ValueError("a line"), [[lives.spec(mark="new")]]]

    def renewed(_number: signal.Signals) -> Groups:
        answer = answers.pop(0)
        if isinstance(answer, ValueError):
            raise answer
        return answer

    made, again = lives.supervisor([lives.spec()], renewed=renewed), sends(signal.SIGHUP)
    claims = (lambda: len(lives) == 1, again, lambda: len(answers) == 1, again)
    assert supervise(made, *claims, lambda: len(lives.left) == 1) == 0
    assert [mark for _, _, mark in lives.lines()] == ["", "new"]


def test_a_replacement_that_has_worked_ends_no_other_process(lives: Lives) -> None:
    new = lives.spec(code=ExitCode.WRONG_USAGE)
    made = lives.supervisor([lives.spec()], renewed=lambda _number: [[new]])

    def end() -> bool:
        made._running["one"].tell(supervisor.LEAVE)
        return True

    replaced = (lambda: len(lives) == 1, sends(signal.SIGHUP), lambda: len(lives.left) == 1)
    assert supervise(made, *replaced, end, lambda: len(lives) == 3) == 0


@pytest.mark.parametrize("broken", [0, 2])
def test_a_replacement_that_never_works_leaves_the_old_processes_alone(
    broken: int, lives: Lives, caplog: pytest.LogCaptureFixture
) -> None:
    old = [lives.spec(), lives.spec("two"), lives.spec("front")]
    new = [*old]
    new[broken] = lives.spec(old[broken].name, code=3, broken=True)
    made = lives.supervisor(old[:2], old[2:], renewed=lambda _number: [new[:2], new[2:]])
    given_up = lambda: "could not be replaced" in caplog.text  # noqa: E731
    # A new process may be killed before it notes that it lives.
    ended = lambda: len(made._children) == 3  # noqa: E731
    assert supervise(made, lambda: len(lives) == 3, sends(signal.SIGHUP), given_up, ended) == 0
    assert {*lives.ended[-3:]} == {*lives.pids[:3]}
    assert not lives.left
    assert [*made._specs.values()] == old


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ({"stays": True, "patience": LONG}, {"patience": LONG}, 0),
        ({"stays": True, "deaf": True, "patience": 0.5}, {"patience": 0.5}, 1),
        ({"stays": True, "deaf": True, "patience": 0.5}, {"patience": LONG}, 1),
        ({}, {"silent": True}, 0),
    ],
    ids=["leaving", "deaf", "deaf and shorter", "starting"],
)
def test_the_end_includes_processes_that_leave_or_that_start_to_replace_another(
    first: dict[str, Any], second: dict[str, Any], code: int, lives: Lives
) -> None:
    """Patience that is long is longer than the test waits."""
    made = lives.supervisor(
        [lives.spec(**first)], renewed=lambda _number: [[lives.spec(**{**first, **second})]]
    )
    replaced = (lambda: len(lives) == 2) if "silent" in second else (lambda: bool(lives.left))
    found = supervise(made, lambda: len(lives) == 1, sends(signal.SIGHUP), replaced)
    assert found == code
    assert sorted(lives.ended) == sorted(lives.pids)
    assert len(lives) == 2
