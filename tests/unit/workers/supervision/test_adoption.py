"""Processes that fork servers make become children of the supervisor, also several at a time."""

import asyncio
import ctypes
import os
import signal
import subprocess

from tests.unit.workers.supervision.test_forking import FORKS, parent_of
from workers.supervision.child import PROGRAM
from workers.supervision.forking import UNKNOWN, ForkedProcess, ForkServer, Orders

GET_CHILD_SUBREAPER = 37


def adopts() -> bool:
    """Return whether this process adopts orphans below it (prctl(2))."""
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(GET_CHILD_SUBREAPER, ctypes.byref(found), 0, 0, 0)
    return bool(found.value)


async def forked_by(server: ForkServer) -> ForkedProcess:
    ready, writing = os.pipe()
    try:
        return await server.fork("tests.supervised_child", "child", writing)
    finally:
        os.close(writing)
        os.close(ready)


def test_a_server_that_has_forked_does_not_end_the_adoption_of_another() -> None:
    async def test() -> None:
        servers = [await ForkServer.start(FORKS, PROGRAM) for _ in range(2)]
        for server in servers:
            await server.settled()
        os.kill(servers[0].pid, signal.SIGSTOP)
        slow = asyncio.create_task(forked_by(servers[0]))
        await asyncio.sleep(0)
        quick = await forked_by(servers[1])
        assert adopts()
        os.kill(servers[0].pid, signal.SIGCONT)
        late = await slow
        assert not adopts()
        for each in (quick, late):
            assert parent_of(each.pid) == os.getpid()
            each.send_signal(signal.SIGKILL)
            assert await each.wait() == -signal.SIGKILL
        for server in servers:
            await server.close()

    asyncio.run(test())


def test_the_end_of_a_process_that_is_no_child_is_noticed() -> None:
    told = subprocess.run(["sh", "-c", "sleep 60 >&- 2>&- & echo $!"], capture_output=True)

    async def test() -> None:
        reading, writing = os.pipe()
        forked = ForkedProcess(int(told.stdout), Orders(writing), -1)
        forked.send_signal(signal.SIGKILL)
        assert await asyncio.wait_for(forked.wait(), 30) == UNKNOWN
        os.close(reading)

    asyncio.run(test())
