"""Send real requests through the application before it accepts connections.

The first request of a process imports modules, starts decoder processes and threads, touches memory
and fills caches, and teaches admission its costs. A server that is ready has done all that.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

import httpx
import numpy as np
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from app.service import Service
from models.codec import Encoding, ImageFormat, encode
from models.domain.image import Image
from models.domain.uncounted import uncounted

log = logging.getLogger("darkroom.start")

AT_ONCE = {False: (8,), True: (1, 4, 16)}
"""Images at the same time in each round, without and with a GPU. All front ends warm up together:
batches of every size form in every worker."""

SECONDS = {False: 1.0, True: 3.0}
"""Seconds for which requests are sent after the rounds of all kinds, without and with a GPU."""

PATIENCE = 12.0
"""Seconds after which the process serves although the warm-up has not ended: without a worker it
could wait until the deadlines of its requests."""

_FORM = b"warm-up"

IN_A_FORM = 4
"""Images of a form."""

Asked = tuple[str, str, bytes, int]
"""Target, content type, body and number of images of a request."""


async def warm_up(app: FastAPI) -> list[int]:
    """Send requests of every kind to `app`; return their statuses, 0 for one without an answer.

    No connection may be accepted yet: API keys are not asked for meanwhile.
    """
    service: Service = app.state.service
    keys, service.keys = service.keys, None
    statuses: list[int] = []
    gpu = service.backend.load().on_gpu
    try:
        with uncounted():
            async with asyncio.timeout(PATIENCE):
                kinds = await asyncio.to_thread(_requests, labels=service.model is not None)
                for each in kinds:
                    for images in AT_ONCE[gpu]:
                        statuses += await _at_once(app, each, images)
                end = time.monotonic() + SECONDS[gpu]
                while time.monotonic() < end:
                    statuses += await _at_once(app, kinds[0], AT_ONCE[gpu][-1])
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
    blurred = ("/filter?name=gaussian_blur&sigma=2", "image/jpeg", photo, 1)
    if not labels:
        return [blurred, ("/filter?name=invert", "image/png", drawing, 1)]
    form = b"".join(
        b'--%b\r\nContent-Disposition: form-data; name="files"; filename="a.jpg"\r\n\r\n%b\r\n'
        % (_FORM, photo)
        for _ in range(IN_A_FORM)
    )
    form += b"--%b--" % _FORM
    return [
        ("/classify", "image/jpeg", photo, 1),
        ("/classify", "image/jpeg", full, 1),
        ("/classify", "image/png", drawing, 1),
        ("/classify", f"multipart/form-data; boundary={_FORM.decode()}", form, IN_A_FORM),
        blurred,
    ]


async def _at_once(app: FastAPI, asked: Asked, images: int) -> Sequence[int]:
    """Send so many equal requests together that they have `images` images; return the statuses."""
    requests = -(-images // asked[3])
    return await asyncio.gather(*(_status(app, asked) for _ in range(requests)))


async def _status(app: FastAPI, asked: Asked) -> int:
    """Call the application as the server does for a request; return the status of the answer."""
    target, kind, body, _ = asked

    async def rated(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "rated": True}, receive, send)  # no rate of a client is charged

    transport = httpx.ASGITransport(rated, client=("127.0.0.1", 0))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        reply = await client.post(target, content=body, headers={"content-type": kind})
        return reply.status_code
