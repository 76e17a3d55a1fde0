"""Processes that are forked from one that has imported what they need."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.workers.supervision.test_spares import lived, member, until
from tests.worker_fixture import wait_until
from workers.supervision import forking
from workers.supervision.child import PROGRAM
from workers.supervision.forking import ForkedProcess, ForkServer, ForkSpec, Orders
from workers.supervision.supervisor import Supervisor

FORKS = ForkSpec("tests.supervised_fork_server", "forks tests", ("colorsys",))
NEVER = replace(FORKS, unless="os.getpid")
BROKEN = replace(FORKS, name="broken")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def words_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")


def test_a_forked_process_is_a_child_that_follows_orders_and_returns_its_exit_code(
    tmp_path: Path,
) -> None:
    lives = tmp_path / "lives"

    async def test() -> None:
        server = await ForkServer.start(FORKS, PROGRAM)
        await server.settled()
        assert server.ready
        codes = []
        for number in range(2):
            ready, writing = os.pipe()
            forked = await server.fork("tests.supervised_child", f"child {number}", writing)
            os.close(writing)
            assert parent_of(forked.pid) == os.getpid()
            forked.stdin.write(
                b'{"lives": "%b", "code": 7, "ready": %d, "seconds": 60}\n'
                % (bytes(lives), forked.ready)
            )
            assert await asyncio.to_thread(os.read, ready, 100)
            assert words_of(forked.pid)[-2:] == [b"tests.supervised_child", b"child %d" % number]
            if number:
                forked.send_signal(signal.SIGKILL)
            else:
                forked.stdin.write(b'{"leave": true}\n')
            codes.append(await forked.wait())
            os.close(ready)
        assert codes == [7, -signal.SIGKILL]
        await server.close()
        assert not server.ready

    asyncio.run(test())


def test_a_fork_server_that_is_not_safe_ends_before_it_forks() -> None:
    async def test() -> None:
        server = await ForkServer.start(NEVER, PROGRAM)
        await server.settled()
        assert not server.ready
        await server.close()

    asyncio.run(test())


@pytest.mark.parametrize("noticed", [False, True])
def test_a_fork_server_that_was_killed_is_an_error_of_the_start(noticed: bool) -> None:
    async def test() -> None:
        server = await ForkServer.start(FORKS, PROGRAM)
        await server.settled()
        os.kill(server.pid, signal.SIGKILL)
        if noticed:
            await wait_until(lambda: not server.alive)
        ready, writing = os.pipe()
        with pytest.raises(OSError, match="nothing was forked"):
            await server.fork("tests.supervised_child", "child", writing)
        os.close(ready)
        os.close(writing)
        await server.close()

    asyncio.run(test())


@pytest.mark.parametrize("forks", [FORKS, NEVER])
def test_members_spares_and_successors_are_forked_if_that_is_safe_and_started_else(
    tmp_path: Path, forks: ForkSpec
) -> None:
    lives = tmp_path / "lives"

    async def test() -> None:
        made = Supervisor([[replace(member(lives), forks=forks)]], spares={"a": 1})
        running = asyncio.create_task(made.run())
        await until(running, lambda: len(lived(lives)) == 1 and made._spares.has("a"))
        first, spare = made._running["one"], made._spares._waiting["a"][0]
        await until(running, spare.ready.is_set)
        for pid in (lived(lives)[0][0], spare.pid):
            os.kill(pid, signal.SIGKILL)
        await until(running, lambda: lived(lives)[-1][0] not in (lived(lives)[0][0], spare.pid))
        forked = forks is FORKS
        for each in (first, spare, made._running["one"]):
            assert isinstance(each._process, ForkedProcess) is forked
        assert made._running["one"].pid == lived(lives)[-1][0]
        signal.raise_signal(signal.SIGTERM)
        assert await running == 0

    asyncio.run(test())


def test_all_members_and_spares_of_a_pool_are_forked_by_one_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives, started = tmp_path / "lives", []
    start = ForkServer.start

    async def noted(spec: ForkSpec, program: str) -> ForkServer:
        server = await start(spec, program)
        started.append(server)
        await asyncio.sleep(0.2)  # the others ask meanwhile
        return server

    monkeypatch.setattr(ForkServer, "start", noted)

    async def test() -> None:
        group = [replace(member(lives, name), forks=FORKS) for name in ("one", "two")]
        made = Supervisor([group], spares={"a": 2})
        running = asyncio.create_task(made.run())
        await until(running, lambda: len(lived(lives)) == 2)
        await until(running, lambda: len(made._spares._waiting["a"]) == 2)
        assert len(started) == 1
        assert all(each.forked for each in (*made._running.values(), *made._spares._waiting["a"]))
        signal.raise_signal(signal.SIGTERM)
        assert await running == 0

    asyncio.run(test())


def test_a_stop_does_not_wait_for_a_fork_server_that_imports(tmp_path: Path) -> None:
    lives = tmp_path / "lives"

    async def test() -> None:
        slow = replace(FORKS, name="slow")
        made = Supervisor([[replace(member(lives), forks=slow)]], spares={"a": 1})
        running = asyncio.create_task(made.run())
        await until(running, lambda: bool(made._begun))
        await until(running, lambda: made._spares.server("a") is not None)
        signal.raise_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running, 20) == 0
        assert not lives.exists()

    asyncio.run(test())


def test_a_stop_does_not_wait_for_a_fork_server_that_was_just_being_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives, started = tmp_path / "lives", list[ForkServer]()
    start = ForkServer.start

    async def stopped(spec: ForkSpec, program: str) -> ForkServer:
        started.append(await start(spec, program))
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.2)
        return started[-1]

    monkeypatch.setattr(ForkServer, "start", stopped)

    async def test() -> None:
        slow = replace(FORKS, name="slow")
        group = [replace(member(lives, name), forks=slow) for name in ("one", "two")]
        made = Supervisor([group], spares={"a": 1})
        assert await asyncio.wait_for(made.run(), 40) == 0
        assert [each.alive for each in started] == [False]
        assert not lives.exists()

    asyncio.run(test())


def test_no_more_is_forked_after_a_forked_process_could_not_work(tmp_path: Path) -> None:
    lives = tmp_path / "lives"

    async def test() -> None:
        made = Supervisor([[replace(member(lives), forks=BROKEN)]], spares={"a": 1})
        running = asyncio.create_task(made.run())
        await until(running, lambda: len(lived(lives)) == 1)
        waiting = made._spares._waiting
        await until(running, lambda: any(each.ready.is_set() for each in waiting["a"]))
        assert not waiting["a"][0].forked
        server = made._spares.server("a")
        assert server is not None
        assert server.was_ready
        assert not server.ready
        signal.raise_signal(signal.SIGTERM)
        assert await running == 0

    asyncio.run(test())


def test_no_spare_starts_while_a_dead_member_has_no_successor(tmp_path: Path) -> None:
    lives = tmp_path / "lives"

    async def test() -> None:
        made = Supervisor([[replace(member(lives), forks=FORKS)]], spares={"a": 1})
        running = asyncio.create_task(made.run())
        await until(running, lambda: len(lived(lives)) == 1 and made._settled("a"))
        first = made._running["one"]
        os.kill(first.pid, signal.SIGKILL)
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 (nothing may notice)
        assert made._running["one"] is first, "nothing has noticed its end"
        assert not made._settled("a")
        await until(running, lambda: made._settled("a"))
        signal.raise_signal(signal.SIGTERM)
        assert await running == 0

    asyncio.run(test())


def test_a_forked_process_that_was_killed_while_it_started_is_forked_again(tmp_path: Path) -> None:
    lives = tmp_path / "lives"

    async def test() -> None:
        silent = member(lives, silent=True)
        made = Supervisor([[replace(silent, forks=FORKS)]], spares={"a": 1})
        running = asyncio.create_task(made.run())
        await until(running, lambda: len(lived(lives)) == 1)
        first = made._running["one"]
        first.send(signal.SIGKILL)
        await until(running, lambda: made._running.get("one") not in (None, first))
        assert first.forked
        assert made._running["one"].forked
        signal.raise_signal(signal.SIGTERM)
        assert await running == 0

    asyncio.run(test())


def test_a_process_and_its_spare_that_are_killed_together_are_one_death(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lives = tmp_path / "lives"

    async def test() -> None:
        made = Supervisor([[member(lives)]], spares={"a": 1})
        running = asyncio.create_task(made.run())
        await until(running, lambda: len(lived(lives)) == 1 and made._spares.has("a"))
        spare = made._spares._waiting["a"][0]
        await until(running, spare.ready.is_set)
        made._spares._keepers[0].cancel()  # no other spare takes the place of this one
        os.kill(lived(lives)[0][0], signal.SIGKILL)
        await until(running, spare.taken.is_set)
        os.kill(spare.pid, signal.SIGKILL)
        await until(running, lambda: made._running.get("one") not in (None, spare))
        signal.raise_signal(signal.SIGTERM)
        assert await running == 0

    asyncio.run(test())
    assert "starting it again in 0 s" in caplog.text


def test_orders_of_an_ended_process_are_not_written_to_another_file(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    other = tmp_path / "other"
    with other.open("wb") as file:
        orders = Orders(writing)
        orders.close()
        os.dup2(file.fileno(), writing)  # as the system gives a number that is free again
        try:
            orders.write(b"{}")
        finally:
            os.close(writing)
    assert other.read_bytes() == b""


def test_a_process_is_replaced_before_the_kernel_has_released_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives, gone = tmp_path / "lives", list[int]()
    reaped = ForkedProcess._on_end
    late: list[ForkedProcess] = []

    def later(self: ForkedProcess) -> None:  # as if its memory were a GPU's
        asyncio.get_running_loop().remove_reader(self._watch)
        late.append(self)

    monkeypatch.setattr(ForkedProcess, "_on_end", later)

    async def test() -> None:
        made = Supervisor([[replace(member(lives), forks=FORKS)]], gone.append, spares={"a": 1})
        running = asyncio.create_task(made.run())
        await until(running, lambda: len(lived(lives)) == 1 and made._spares.has("a"))
        first, spare = made._running["one"], made._spares._waiting["a"][0]
        await until(running, spare.ready.is_set)
        for each in (first, spare):
            os.kill(each.pid, signal.SIGKILL)
        await until(running, lambda: len(lived(lives)) == 2)
        assert lived(lives)[1][0] not in (first.pid, spare.pid)
        assert first.alive
        assert not first.works
        assert gone == []
        for process in late:
            reaped(process)
        await until(running, lambda: gone == [first.pid])
        late.clear()
        signal.raise_signal(signal.SIGTERM)
        while not running.done():
            for process in late:
                reaped(process)
            late.clear()
            await asyncio.sleep(0.01)
        assert await running == 0

    asyncio.run(test())


@pytest.mark.parametrize("limit", ["IMPORTS", "STOPPED"])
def test_a_fork_server_that_hangs_in_its_imports_is_ended(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forking, "IMPORTS", 1e9)
    monkeypatch.setattr(forking, limit, 0.5)

    async def test() -> None:
        server = await ForkServer.start(replace(FORKS, name="slow"), PROGRAM)
        if limit == "STOPPED":
            os.kill(server.pid, signal.SIGSTOP)
        await asyncio.wait_for(server.settled(), 20)
        assert not server.trusted
        await asyncio.wait_for(server.close(), 20)

    asyncio.run(test())
