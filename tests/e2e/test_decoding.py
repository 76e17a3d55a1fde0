"""Decoding over HTTP: hostile files are their own errors, and everything else goes on."""

import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests import hostile
from tests.e2e.conftest import Running, Start
from tests.server import until

BYTES = {"Content-Type": "application/octet-stream"}


def classified(client: httpx.Client, data: bytes, **headers: str) -> httpx.Response:
    return client.post("/classify", content=data, headers=BYTES | headers)


def decoders(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/readyz?verbose").json()["decoders"]
    return found


def processes() -> set[int]:
    """Return the decoder processes of this machine that are children of a child of ours."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            parent = int(rest.split()[1])
            grand = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1]
            if name == "darkroom-decode" and int(grand) == os.getpid():
                found.add(int(folder.name))
    return found


def send(number: signal.Signals, pids: set[int]) -> None:
    """Send a signal to those of the processes that have not ended meanwhile."""
    for pid in pids & processes():
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def test_a_hostile_file_fails_alone_in_a_request_of_several(client: httpx.Client) -> None:
    files = [
        ("files", ("bad", hostile.jpeg_of_scans())),
        ("files", ("good", hostile.small("PNG"))),
    ]
    first, second = client.post("/classify", files=files).json()["results"]
    assert first["error"]["code"] == "undecodable"
    assert second["status"] == "ok"


def test_a_deadline_ends_the_decoding(client: httpx.Client) -> None:
    def cancelled() -> int:
        return int(decoders(client)["ended"].get("cancelled", 0))

    data = hostile.small("PNG")
    assert classified(client, data).status_code == 200
    before, stopped = cancelled(), processes()
    assert stopped
    try:
        send(signal.SIGSTOP, stopped)  # so that no decoding ends before the deadline
        for milliseconds in ("500", "5000", "50000"):  # a busy machine may not have begun by then
            reply = classified(client, data, **{"X-Deadline-Ms": milliseconds})
            assert reply.status_code == 504, reply.text
            until(lambda: decoders(client)["busy"] == 0)
            if cancelled() > before:
                break
    finally:
        send(signal.SIGCONT, stopped)
    assert cancelled() == before + 1
    until(lambda: not stopped <= processes())


def replaced(killed: set[int]) -> bool:
    """Return whether none of the killed processes is left."""
    return not killed & processes()


def test_killed_decoders_are_replaced_and_counted(client: httpx.Client) -> None:
    data = hostile.small("PNG")
    for _ in range(3):
        assert classified(client, data).status_code == 200
        killed = processes()
        send(signal.SIGKILL, killed)
        until(partial(replaced, killed))
    assert classified(client, data).status_code == 200
    assert "darkroom_decoder_ends_total" in client.get("/metrics").text


def test_decoders_end_with_their_server(start: Start) -> None:
    before = processes()
    with start(front_ends="0") as running:
        assert isinstance(running, Running)
        assert classified(running.client, hostile.small("PNG")).status_code == 200
        assert processes() - before
    until(lambda: processes() <= before)


def test_an_encoding_that_would_take_minutes_is_refused_at_once(client: httpx.Client) -> None:
    data, before = hostile.small("PNG", (3000, 2000)), decoders(client)["ended"]
    reply = client.post("/filter?name=invert&format=avif&avif_speed=0", content=data, headers=BYTES)
    assert reply.status_code == 422, reply.text
    assert "CPU time" in reply.json()["detail"]
    assert decoders(client)["ended"] == before, "an encoder ran until its time was up"
