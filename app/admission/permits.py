"""Give permits for requests, images, bytes and work: this is the only place that sheds load.

Behind it work waits (backpressure) and is bounded by its deadline, never refused.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from app.admission.clients import LOCAL
from app.admission.counters import ByKey, Counters, Rate, Total
from app.admission.line import FairLine, Turn
from models.domain.alarms import alarms, interrupted
from models.domain.deadline import NEVER, Deadline
from models.domain.errors import Draining, Overloaded, RateLimited, TooLarge
from models.domain.job import Lane, counts
from models.settings import Settings

CLIENT_SHARE = 15
"""One client may hold this many times the free part of a limit. So a single client gets at most
15/16 of the limit, two get 15/31 each, and a part is always free for one more (dynamic thresholds:
Choudhury and Hahne, 1998, https://doi.org/10.1109/90.664262)."""

CONTENDED = 2.0
"""Seconds after several clients had images in which one that holds more than half leaves places
and cores to others."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds after which a stream asks again, at the earliest and at the latest."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be in flight over all front ends; for a client 0 means no limit of its own.

    Of the bytes that may be admitted, half may be of bodies that are still `arriving`.
    """

    images: int
    bytes: int
    arriving: int
    client_images: int = 0

    @classmethod
    def from_settings(cls, settings: Settings) -> "Limits":
        """Return the limits of the settings."""
        return cls(
            settings.max_images_in_flight,
            settings.max_bytes_in_flight,
            max(1, settings.max_bytes_in_flight // 2),
            settings.max_images_per_client,
        )

    def check(self, n_images: int, n_bytes: int) -> None:
        """Raise TooLarge if even an idle server could not admit these images and bytes."""
        images, setting = self.images, "DARKROOM_MAX_IMAGES_IN_FLIGHT"
        if self.client_images and self.client_images < images:
            images, setting = self.client_images, "DARKROOM_MAX_IMAGES_PER_CLIENT"
        if n_images > images or n_bytes > self.bytes:
            raise TooLarge(
                f"{n_images} images ({n_bytes} bytes) never fit: the server holds "
                f"{images} images ({setting}) and {self.bytes} bytes "
                "(DARKROOM_MAX_BYTES_IN_FLIGHT); send smaller requests"
            )


def within_share(own: int, total: int, limit: int) -> bool:
    """Return whether a client may hold `own` of the `total` that is held of a limit."""
    return own <= CLIENT_SHARE * max(0, limit - total + 1)


class Permit:
    """Permit of one request: holds images, bytes and work until its `with` block ends.

    `deadline` is that of the request, `client` its client, `lane` the most urgent lane of its
    images. What is in the background, as jobs are, takes only what others leave: its images are not
    counted, and it is never refused for them.
    """

    def __init__(self, admission: "Admission", client: str, deadline: Deadline, lane: Lane) -> None:
        self._admission = admission
        self._key = admission.counters.key(f"client {client}")
        self.client = client
        self.deadline = deadline
        self.in_background = lane is Lane.BACKGROUND
        self._most_urgent = self.lane = lane
        """The lane in which the last image of the request that got a turn is computed."""
        self._arriving = self._images = self._bytes = 0

    def arrives(self, n_bytes: int) -> None:
        """Count bytes of the body that have arrived; raises Overloaded and TooLarge.

        A body that is alone may take everything.
        """
        size, limit = self._arriving + n_bytes, self._admission.limits.arriving
        if size > limit:
            raise TooLarge(
                f"a body of {size} bytes never fits: the server takes in {limit} at a time, half "
                "of DARKROOM_MAX_BYTES_IN_FLIGHT"
            )
        self._count_arriving(n_bytes)
        own, total = self._held(ByKey.ARRIVING, Total.ARRIVING)
        if total > limit or (total > size and not within_share(own, total, limit)):
            self._count_arriving(-n_bytes)
            raise self._overloaded(
                f"{total - n_bytes} bytes of requests are arriving, {own - n_bytes} of them yours; "
                f"the limit is {limit}",
                "arriving_bytes" if total > limit else "client_share",
            )

    def complete(self, n_bytes: int, images: int = 1) -> None:
        """Admit `images` of `n_bytes` bytes, whose body has arrived; raises as `grow` does."""
        self.grow(images, n_bytes)
        if self._arriving:
            self._count_arriving(-self._arriving)

    def grow(self, n_images: int, n_bytes: int) -> None:
        """Hold more images, which were found in the body, or more bytes, which were downloaded.

        Raises Overloaded, TooLarge and RateLimited. A request that is alone may hold everything.
        """
        if self.in_background:
            n_images = 0
        if not (n_images or n_bytes):
            return
        self._admission.limits.check(self._images + n_images, self._bytes + n_bytes)
        first = not self._images  # the first image was charged with the headers
        self._count(n_images, n_bytes)
        try:
            self._check(n_images, n_bytes)
            self._admission.charge_rate(self.client, n_images - first)
        except (Overloaded, RateLimited):
            self._count(-n_images, -n_bytes)
            raise

    def expect(self, images: int) -> None:
        """Raise Overloaded if this many images would wait for long or end too late."""
        if not self.in_background:
            self._admission.line.check(self.client, self.deadline, images)

    def turn(self, work: int) -> Turn:
        """Return the turn of an image that takes `work` microseconds of one core."""
        return Turn(self._admission.line, self, work)

    def standing(self) -> tuple[Lane, bool]:
        """Return the lane of the client's images, and whether others want something beside it.

        They are bulk if the client asks for that, or if it holds most of the images in flight, and
        more than keep the device busy if it is alone.
        """
        if self.in_background:
            return Lane.BACKGROUND, True
        own, total = self._held(ByKey.IMAGES, Total.IMAGES)
        contended = own < total or self._admission.clock() < self._admission.contended_until
        most = own > 1 and 2 * own > total and (contended or own > self._admission.line.least)
        return (Lane.BULK if most else self._most_urgent), contended

    def release(self) -> None:
        """Release everything that is held; further calls have no effect."""
        self._count(-self._images, -self._bytes)
        if self._arriving:
            self._count_arriving(-self._arriving)

    def _check(self, n_images: int, n_bytes: int) -> None:
        """Raise Overloaded if what is counted, with these images and bytes, exceeds a limit."""
        limits = self._admission.limits
        own, images = self._held(ByKey.IMAGES, Total.IMAGES)
        all_bytes = self._admission.counters.total(Total.BYTES)
        if own < images:
            self._admission.contended_until = self._admission.clock() + CONTENDED
        if images > limits.images:
            reason = "images_in_flight"
        elif all_bytes > limits.bytes:
            reason = "bytes_in_flight"
        elif n_images and limits.client_images and own > limits.client_images:
            reason = "client_images"
        elif n_images and images > self._images and not within_share(own, images, limits.images):
            reason = "client_share"
        else:
            return
        raise self._overloaded(
            f"{images - n_images} images ({all_bytes - n_bytes} bytes) are in flight, "
            f"{own - n_images} of them yours; the limits are {limits.images} and {limits.bytes}",
            reason,
        )

    def _overloaded(self, detail: str, reason: str) -> Overloaded:
        # Clients take turns: one with a small share gets a place as soon as anything ends.
        wait = self._admission.line.wait(self.client) or 1.0
        return Overloaded(f"{detail}; try again later", retry_after=wait, reason=reason)

    def _held(self, by_key: ByKey, total: Total) -> tuple[int, int]:
        """Return what the client holds, and all clients together."""
        counters = self._admission.counters
        return counters.of(self._key, by_key), counters.total(total)

    def _count(self, n_images: int, n_bytes: int) -> None:
        counters = self._admission.counters
        if n_images:
            self._images += n_images
            counters.add(Total.IMAGES, n_images)
            counters.add_for(self._key, ByKey.IMAGES, n_images)
        if n_bytes:
            self._bytes += n_bytes
            counters.add(Total.BYTES, n_bytes)

    def _count_arriving(self, n_bytes: int) -> None:
        counters = self._admission.counters
        self._arriving += n_bytes
        counters.add(Total.ARRIVING, n_bytes)
        counters.add_for(self._key, ByKey.ARRIVING, n_bytes)

    def __enter__(self) -> "Permit":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Admission:
    """Admits requests while the limits allow it and the wait is short.

    `line` is where admitted images wait: `at_once` images keep the `cores` busy; `speed`,
    `most_bulk` and `alone` are explained in `FairLine`. `rate` is what one client may send. Front
    ends with the same `counters` share the limits. Lives on one event loop.
    """

    def __init__(
        self,
        limits: Limits,
        counters: Counters | None = None,
        cores: float = 1.0,
        at_once: int = 0,
        *,
        speed: float = 1.0,
        most_bulk: int | None = None,
        alone: int = 0,
        rate: Rate | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.counters = counters or Counters()
        self.line = FairLine(at_once or limits.images, cores, speed, clock, most_bulk, alone)
        self.rate = rate
        self.clock = clock
        self.draining = False
        self.contended_until = -1.0

    def set_limits(self, settings: Settings) -> None:
        """Take the limits and the rate from other settings; admitted requests stay admitted."""
        self.limits = Limits.from_settings(settings)
        self.rate = Rate.parse(settings.rate_limit)

    def enter(
        self,
        client: str = LOCAL,
        deadline: Deadline = NEVER,
        lane: Lane = Lane.INTERACTIVE,
        *,
        rated: bool = False,
    ) -> Permit:
        """Return a permit for a request whose body may still have to come; it holds no image yet.

        A client that sends too much is refused before its bodies are read.
        `rated`: the request was charged against its client's rate. Raises Overloaded and
        RateLimited, and Draining; what is in the background is admitted in any case.
        """
        if lane is not Lane.BACKGROUND:
            if self.draining:
                raise Draining("this server is stopping; ask another one")
            if not rated:
                self.charge_rate(client, 1)
            self.line.check(client, deadline)
        return Permit(self, client, deadline, lane)

    def charge_rate(self, client: str, n_images: int) -> None:
        """Count images against the rate of a client; raises RateLimited."""
        rate = self.rate
        if rate is None or client == LOCAL or n_images <= 0 or not counts():
            return
        if wait := self.counters.take_rate(client, n_images, rate, self.clock()):
            raise RateLimited(
                f"{client} may send {rate.per_second:g} images a second and {rate.burst:g} at once "
                f"(DARKROOM_RATE_LIMIT); try again in {wait:.1f} seconds",
                retry_after=wait,
            )


class StreamPermits:
    """Gives permits to the images of one client's stream, which waits where a request is refused.

    While it waits nothing more is read from the client, so the refusal of one image becomes flow
    control for all. Only an image that waits longer than its deadline allows is refused. Each image
    has `seconds` from its permit on, and counts as `parts` images. The first image is not charged
    against the rate: the request was.
    """

    def __init__(
        self,
        admission: Admission,
        client: str,
        seconds: float,
        parts: int = 1,
        lane: Lane = Lane.INTERACTIVE,
    ) -> None:
        self._admission = admission
        self._client = client
        self._lane = lane
        self._seconds = seconds
        self._parts = parts
        self._rated = True

    async def enter(self) -> Permit:
        """Return a permit for the next image, which may still have to come.

        Raises Overloaded and RateLimited after the time of an image, and Draining.
        """
        if not self._rated:
            await self._patiently(partial(self._admission.charge_rate, self._client, 1))
        self._rated = True  # also if no permit is given: waiting for one charges nothing more
        permit = await self._patiently(
            lambda: self._admission.enter(self._client, self._deadline(), self._lane, rated=True)
        )
        self._rated = False
        return permit

    async def arrives(self, permit: Permit, n_bytes: int) -> None:
        """Count bytes of an image that has not arrived whole; raises Overloaded and TooLarge."""
        await self._patiently(partial(permit.arrives, n_bytes))

    async def complete(self, permit: Permit, n_bytes: int) -> None:
        """Admit an image of `n_bytes` that is complete, and begin its time.

        Raises Overloaded and TooLarge.
        """
        await self._patiently(partial(permit.complete, n_bytes, self._parts))
        permit.deadline = self._deadline()
        await self._patiently(partial(permit.expect, 1))
        permit.deadline = self._deadline()

    def _deadline(self) -> Deadline:
        return Deadline(self._admission.clock() + self._seconds)

    async def _patiently(self, attempt: Callable[[], T]) -> T:
        """Return what `attempt` returns; repeat it while admission refuses it. Raises Draining."""
        end = time.monotonic() + self._seconds
        while True:
            try:
                return attempt()
            except (Overloaded, RateLimited) as error:
                left = end - time.monotonic()
                if left <= 0:
                    raise
                pause = max(SHORTEST_PAUSE, min(error.retry_after, LONGEST_PAUSE))
            await asyncio.sleep(min(left, pause))
            if alarms().ended:
                raise interrupted()
