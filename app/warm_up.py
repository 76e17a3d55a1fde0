"""Send real requests through the application before it accepts connections.

The first request of a process imports modules, starts decoder processes and threads, touches memory
and fills caches, and teaches admission its costs. A server that is ready has done all that.
"""

import asyncio
import logging
import time

import httpx
import numpy as np
from fastapi import FastAPI

from app.service import Service
from models.codec import Encoding, ImageFormat, encode
from models.domain.image import Image
from models.domain.job import uncounted
from models.networks.served import chosen

log = logging.getLogger("darkroom.start")

AT_ONCE = {False: (8,), True: (1, 4, 16)}
"""Images at the same time in each round, without and with a GPU. All front ends warm up together:
batches of every size form in every worker."""

SECONDS = {False: 1.0, True: 3.0}
"""Seconds for which requests are sent after the rounds of all kinds, without and with a GPU.
Without a GPU they keep all cores busy: only then admission measures the speed."""

PATIENCE = 12.0
"""Seconds after which the process serves although the warm-up has not ended: without a worker it
could wait until the deadlines of its requests."""

IN_A_FORM = 4
"""Images of a form."""

Asked = tuple[str, str | None, bytes]
"""Target and content type of a request, and its image; without a type the image comes in a form."""


async def warm_up(app: FastAPI) -> list[int]:
    """Send requests of every kind to `app`; return their statuses.

    No connection may be accepted yet: API keys are not asked for meanwhile.
    """
    service: Service = app.state.service
    keys, service.keys = service.keys, None
    statuses: list[int] = []
    gpu = service.backend.load().on_gpu
    busy = max(AT_ONCE[gpu][-1], 0 if gpu else service.admission.line.least)

    transport = httpx.ASGITransport(app, client=("127.0.0.1", 0))
    client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def send(asked: Asked, images: int) -> None:
        """Send so many equal requests together that they have `images` images."""
        target, kind, image = asked
        if kind is None:
            files = [("files", ("a.jpg", image))] * IN_A_FORM
            replies = [client.post(target, files=files) for _ in range(-(-images // IN_A_FORM))]
        else:
            headers = {"content-type": kind}
            replies = [client.post(target, content=image, headers=headers) for _ in range(images)]
        statuses.extend([each.status_code for each in await asyncio.gather(*replies)])

    try:
        with uncounted():
            async with asyncio.timeout(PATIENCE), client:
                kinds = await asyncio.to_thread(_requests, _classify(service))
                for each in kinds:
                    for images in AT_ONCE[gpu]:
                        await send(each, images)
                end = time.monotonic() + SECONDS[gpu]
                while time.monotonic() < end:
                    await send(kinds[0], busy)
    except TimeoutError:
        log.warning(
            "the warm-up did not end within %.0f s; the first requests are slower", PATIENCE
        )
    finally:
        service.keys = keys
    return statuses


def _classify(service: Service) -> str | None:
    """Return the target of requests to the default network, None where it has no weights."""
    network = chosen(service.computing().networks, None)
    if network.model is None:
        return None
    return "/classify" if network.n_classes else "/classify?output=embedding"


def _requests(classify: str | None) -> list[Asked]:
    """Return a request of each kind, the most frequent kind first."""
    random = np.random.default_rng(0)
    coarse = random.integers(0, 216, (75, 100, 3), np.uint8).repeat(5, 0).repeat(5, 1)
    pixels = coarse + random.integers(0, 40, coarse.shape, np.uint8)
    photo = encode(Image(pixels), ImageFormat.JPEG, Encoding(quality=90))
    full = encode(Image(pixels), ImageFormat.JPEG, Encoding(quality=90, chroma="444"))
    drawing = encode(Image(coarse[:100, :100]), ImageFormat.PNG)
    blurred = ("/filter?name=gaussian_blur&sigma=2", "image/jpeg", photo)
    if classify is None:
        return [blurred, ("/filter?name=invert", "image/png", drawing)]
    return [
        (classify, "image/jpeg", photo),
        (classify, "image/jpeg", full),
        (classify, "image/png", drawing),
        (classify, None, photo),
        blurred,
    ]
