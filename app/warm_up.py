"""Send real requests through the application before it accepts connections.

The first request of a process imports modules, starts decoder processes and threads, touches memory
and fills caches, and teaches admission its costs. A server that is ready has done all that.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

import numpy as np
from fastapi import FastAPI
from starlette.types import Message

from app.service import Service
from models.codec import Encoding, ImageFormat, encode
from models.domain.image import Image
from models.domain.uncounted import uncounted

log = logging.getLogger("darkroom.start")

AT_ONCE = 8
"""Requests at the same time: batches of several sizes form."""

SECONDS = 1.0
"""Seconds for which requests are sent, after the first round of each kind."""

PATIENCE = 10.0
"""Seconds after which the process serves although the warm-up has not ended: without a worker it
could wait until the deadlines of its requests."""

_FORM = b"warm-up"

Asked = tuple[str, str, bytes]
"""Target, content type and body of a request."""


async def warm_up(app: FastAPI) -> list[int]:
    """Send requests of every kind to `app`; return their statuses, 0 for one without an answer.

    No connection may be accepted yet: API keys are not asked for meanwhile.
    """
    service: Service = app.state.service
    keys, service.keys = service.keys, None
    statuses: list[int] = []
    try:
        with uncounted():
            async with asyncio.timeout(PATIENCE):
                kinds = await asyncio.to_thread(_requests, labels=service.model is not None)
                for each in kinds:
                    statuses += await _at_once(app, each)
                end = time.monotonic() + SECONDS
                while time.monotonic() < end:
                    statuses += await _at_once(app, kinds[0])
    except TimeoutError:
        log.warning(
            "the warm-up did not end within %.0f s; the first requests are slower", PATIENCE
        )
    finally:
        service.keys = keys
    return statuses


def _requests(*, labels: bool) -> list[Asked]:
    """Return a request of each kind, the most frequent kind first."""
    random = np.random.default_rng(0)
    coarse = random.integers(0, 216, (75, 100, 3), np.uint8).repeat(5, 0).repeat(5, 1)
    pixels = coarse + random.integers(0, 40, coarse.shape, np.uint8)
    photo = encode(Image(pixels), ImageFormat.JPEG, Encoding(quality=90))
    full = encode(Image(pixels), ImageFormat.JPEG, Encoding(quality=90, chroma="444"))
    drawing = encode(Image(coarse[:100, :100]), ImageFormat.PNG)
    blurred = ("/filter?name=gaussian_blur&sigma=2", "image/jpeg", photo)
    if not labels:
        return [blurred, ("/filter?name=invert", "image/png", drawing)]
    form = b"".join(
        b'--%b\r\nContent-Disposition: form-data; name="files"; filename="a.jpg"\r\n\r\n%b\r\n'
        % (_FORM, photo)
        for _ in range(4)
    )
    return [
        ("/classify", "image/jpeg", photo),
        ("/classify", "image/jpeg", full),
        ("/classify", "image/png", drawing),
        ("/classify", f"multipart/form-data; boundary={_FORM.decode()}", form + b"--%b--" % _FORM),
        blurred,
    ]


async def _at_once(app: FastAPI, asked: Asked) -> Sequence[int]:
    return await asyncio.gather(*(_status(app, asked) for _ in range(AT_ONCE)))


async def _status(app: FastAPI, asked: Asked) -> int:
    """Call the application as the server does for a request; return the status of the answer."""
    target, kind, body = asked
    path, _, query = target.partition("?")
    headers = {"host": "localhost", "content-type": kind, "content-length": str(len(body))}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
        "state": {},
        "rated": True,  # no rate of a client is charged
    }
    given, status = asyncio.Event(), 0

    async def receive() -> Message:
        if given.is_set():
            await asyncio.Event().wait()  # the client stays until it has its answer
        given.set()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)

    await app(scope, receive, send)
    return status
