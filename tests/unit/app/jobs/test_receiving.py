"""Bodies that make jobs: clients share the threads that read them."""

import asyncio
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from app.http.request import DEPARTURE, Departure
from app.jobs import receiving
from app.jobs.receiving import THREADS, Received, Receiver, Room, unpack
from models.domain.errors import Cancelled, StorageFull
from models.settings import Settings
from tests.unit.app.archives.test_zip_archive import packed

ROOM = Room(1 << 30, StorageFull("full"))
SCOPE = {"type": "http", "headers": [], "method": "POST", "path": "/jobs"}


class SlowArchives:
    """Archives of clients whose reading takes a thread until they are `released`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
        self.begun, self.released = Semaphore(0), Event()
        self._slow = slow
        monkeypatch.setattr(receiving, "unpack", self._waited)

    def _waited(self, folder: Path, *others: Any) -> None:
        if folder.name.startswith(self._slow):
            self.begun.release()
            assert self.released.wait(60)
        unpack(folder, *others)


class Sender:
    """Sends archives as bodies of jobs, whose clients stay until they `leave`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clients = dict[str, Departure]()

    def send(self, name: str, client: str) -> asyncio.Task[Received]:
        """Send one archive; its folder has the name."""
        bodies: list[Message] = [{"type": "http.request", "body": packed({"a.jpg": b"1"})}]

        async def receive() -> Message:
            return bodies.pop()

        scope = {**SCOPE, DEPARTURE: self._clients.setdefault(name, Departure())}
        (folder := self._folder / name).mkdir()
        receiver = Receiver(folder, Settings(), b"", 32, ROOM, client)
        return asyncio.create_task(receiver.receive(Request(scope, receive), "application/zip"))

    def leave(self, name: str) -> None:
        """Let the client of an archive close its connection."""
        self._clients[name].happen()


def test_archives_of_one_client_leave_a_thread_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        archives = SlowArchives(monkeypatch, "slow")
        async with asyncio.timeout(60):
            sender = Sender(tmp_path)
            slow = [sender.send(f"slow{n}", "one") for n in range(THREADS)]
            try:
                await asyncio.to_thread(archives.begun.acquire)
                assert (await sender.send("quick", "two")).total == 1
            finally:
                archives.released.set()
            assert [each.total for each in await asyncio.gather(*slow)] == [1] * THREADS
        assert receiving.TURNS.used == 0

    asyncio.run(scenario())


def test_an_archive_whose_client_leaves_before_its_turn_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        archives = SlowArchives(monkeypatch, "slow")
        async with asyncio.timeout(60):
            sender = Sender(tmp_path)
            slow = [sender.send(f"slow{n}", "one") for n in range(THREADS - 1)]
            for _ in slow:
                await asyncio.to_thread(archives.begun.acquire)
            waiting = sender.send("slow that waits", "one")
            sender.leave("slow that waits")
            with pytest.raises(Cancelled, match="the client left"):
                await waiting
            archives.released.set()
            await asyncio.gather(*slow)
        assert not archives.begun.acquire(blocking=False)
        assert receiving.TURNS.used == 0

    asyncio.run(scenario())


def test_a_file_input_that_was_left_empty_is_no_part_of_a_form(tmp_path: Path) -> None:
    def part(name: str, filename: str, content: bytes) -> bytes:
        head = (
            f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\n\r\n'
        )
        return head.encode() + content + b"\r\n"

    empty, archive = part("manifest", "", b""), part("archive", "a.zip", packed({"a.jpg": b"1"}))
    scope = {**SCOPE, "headers": [(b"content-type", b"multipart/form-data; boundary=b")]}
    bodies: list[Message] = [{"type": "http.request", "body": empty + archive + b"--b--\r\n"}]

    async def receive() -> Message:
        if bodies:
            return bodies.pop()
        await asyncio.Event().wait()
        raise AssertionError("the client stays")

    async def scenario() -> Received:
        (folder := tmp_path / "job").mkdir()
        receiver = Receiver(folder, Settings(), b"", 32, ROOM, "one")
        return await receiver.receive(Request(scope, receive), "multipart/form-data")

    assert asyncio.run(scenario()).total == 1
