"""The walk of one image through the rooms of `app`: a later room never calls an earlier one.

A profiler notes, for every function that one request enters on the event loop, its room and the
room that called it. docs/architecture.md says what comes of it.
"""

import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from app import main
from tests.in_process import client_of, served
from tests.pictures import jpeg
from tests.unit.app.archives.test_reading import zipped

ROOT = Path(main.__file__).parents[1]

ROOMS = ("server", "routes", "admission", "intake", "fetch", "pipeline", "workers", "responses")
"""The rooms in the order in which an image passes them; `fetch` is for URLs only, and
`server` for requests that come through a socket."""

FOLDERS = {"connections": "server", "processes": "server"}
"""Rooms of folders that do not have the name of their room."""

HELD = "admission"
"""The room whose permit an image holds until its end; calls back into it are allowed."""

VALUES = {
    "app/intake/inference.py",
    "app/intake/wanted.py",
    "app/intake/spool.py",
    "app/pipeline/encoded_files.py",
    "app/pipeline/outcomes.py",
}
"""Files of the values that are handed forward: a room may ask a value that it was given."""

CHANNELS = {
    "app/intake/body.py",
    "app/routes/middleware.py",
}
"""Files that wrap ASGI's `receive` and `send`, which are called as if they were the server's."""

Call = tuple[str, str]
"""The room that calls, and the room of the function that is called."""


def room_of(frame: FrameType) -> str | None:
    """Return the room of a function; None if it is in none of ROOMS, in VALUES or CHANNELS."""
    path = Path(frame.f_code.co_filename)
    if ROOT not in path.parents or str(path.relative_to(ROOT)) in VALUES | CHANNELS:
        return None
    package, *rest = path.relative_to(ROOT).parts
    room = FOLDERS.get(rest[0], rest[0]) if package == "app" else package
    return room if room in ROOMS else None


def caller_of(frame: FrameType) -> str | None:
    """Return the room of the nearest caller that is in one."""
    caller = frame.f_back
    while caller is not None:
        if room := room_of(caller):
            return room
        caller = caller.f_back
    return None


@contextmanager
def walking() -> Iterator[list[Call]]:
    """Note calls between rooms on this thread.

    A coroutine that goes on is not called again. An asynchronous generator is not called either by
    the room that iterates over it: that is how answers come forward.
    """
    calls: list[Call] = []
    seen: set[FrameType] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or frame in seen:
            return
        seen.add(frame)
        room = room_of(frame)
        if room is None or frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR:
            return
        caller = caller_of(frame)
        if caller is not None and caller != room:
            calls.append((caller, room))

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def backward(calls: Sequence[Call]) -> list[Call]:
    """Return the calls from a room to one that an image passes before it."""
    earlier = [each for each in calls if ROOMS.index(each[1]) < ROOMS.index(each[0])]
    return [each for each in earlier if each[1] != HELD]


PHOTO = jpeg(1, 64, 48)


async def walk_of(path: str, body: bytes = PHOTO, **headers: str) -> tuple[list[Call], int]:
    """Return the calls between rooms while a body is answered, and the status of its answer."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with served() as app, client_of(app) as client:
        with walking() as calls:
            reply = await client.post(path, content=body, headers=given)
    return calls, reply.status_code


RAW = {"content_type": "image/jpeg"}
LINES = {"accept": "application/x-ndjson"}
ZIPPED = zipped({"a.jpg": PHOTO, "b.jpg": PHOTO})
FRAMED = (len(PHOTO).to_bytes(4, "big") + PHOTO) * 2


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        ("/classify", RAW, PHOTO),
        ("/classify", RAW | LINES, PHOTO),
        ("/filter?name=invert", RAW | {"accept": "image/png"}, PHOTO),
        ("/filter?name=invert", RAW | {"accept": "application/zip"}, PHOTO),
        ("/process?versions=[{%22name%22:%22invert%22}]", RAW, PHOTO),
        ("/classify", LINES | {"content_type": "application/zip"}, ZIPPED),
        ("/classify", LINES | {"content_type": "application/x-length-delimited"}, FRAMED),
    ],
)
async def test_a_later_room_never_calls_an_earlier_one(
    path: str, headers: dict[str, str], body: bytes
) -> None:
    calls, status = await walk_of(path, body, **headers)
    assert status == 200
    assert {("pipeline", "workers")} <= {*calls}
    assert {*ROOMS} - {"fetch", "server", "admission"} <= {room for call in calls for room in call}
    assert backward(calls) == []


async def test_inference_requests_walk_the_same_way() -> None:
    outputs = [{"name": "SCORES", "parameters": {"classification": 1}}]
    raw = len(PHOTO).to_bytes(4, "little") + PHOTO
    given: dict[str, object] = {"name": "IMAGE", "datatype": "BYTES", "shape": [1]}
    given["parameters"] = {"binary_data_size": len(raw)}
    head = json.dumps({"inputs": [given], "outputs": outputs}).encode()
    path, length = "/v2/models/resnet18/infer", str(len(head))
    calls, status = await walk_of(path, head + raw, inference_header_content_length=length)
    assert status == 200
    assert {room for call in calls for room in call} == {*ROOMS} - {"fetch", "server"}
    assert backward(calls) == []
