"""Give permits for requests, images, bytes and work: this is the only place that sheds load.

Behind it work waits (backpressure) and is bounded by its deadline, never refused.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from app.admission.clients import LOCAL
from app.admission.counters import ByKey, Counters, Rate, Total
from app.admission.line import FairLine, Turn
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

FIRST_CHARGE = 1 << 16
"""Bytes that are charged for the first byte of a body. The charge is doubled whenever the body is
longer, so that a body of any size takes few steps."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be in flight over all front ends; for a client 0 means no limit of its own."""

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
            settings.max_arriving_bytes,
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

    `deadline` is that of the request, `client` its client. What is in the background, as jobs are,
    takes only what others leave: its images are not counted, and it is never refused for them.
    """

    def __init__(
        self, admission: "Admission", client: str, deadline: Deadline, background: bool
    ) -> None:
        self._admission = admission
        self.client = client
        self.deadline = deadline
        self.in_background = background
        self.lane = Lane.BACKGROUND if background else Lane.INTERACTIVE
        """The lane in which the last image of the request that got a turn is computed."""
        self.size = 0
        """Bytes of the body that have arrived."""
        self._images = self._bytes = self._charged = 0
        self._ended = False

    def arrives(self, n_bytes: int, announced: int) -> None:
        """Count bytes of the body that have arrived; raises Overloaded and TooLarge.

        `announced` is the size of the whole body, 0 if it is unknown. Bytes are charged as they
        come, never because they were announced.
        """
        self.size += n_bytes
        self.charge(announced)

    def charge(self, announced: int) -> None:
        """Charge for the bytes that have arrived, as `arrives` does."""
        if self.size <= self._charged:
            return
        charge = max(self._charged, FIRST_CHARGE)
        while charge < self.size:
            charge *= 2
        charge = max(self.size, min(charge, announced or charge))
        if charge > self._admission.limits.arriving:
            raise TooLarge(
                f"a body of {charge} bytes never fits: the server takes in "
                f"{self._admission.limits.arriving} at a time, half of DARKROOM_MAX_BYTES_IN_FLIGHT"
            )
        self._admission.arrive(self.client, charge - self._charged, charge)
        self._charged = charge

    def complete(self, n_bytes: int, held: int | None = None, images: int = 1) -> None:
        """Count the last bytes of the body; now it is admitted, with `images` of `held` bytes."""
        self.size += n_bytes
        self.grow(images, self.size if held is None else held)
        self._arrived()

    def grow(self, n_images: int, n_bytes: int) -> None:
        """Hold more images, which were found in the body, or more bytes, which were downloaded.

        Raises Overloaded, TooLarge and RateLimited.
        """
        if self.in_background:
            n_images = 0
        if not (n_images or n_bytes):
            return
        images, all_bytes = self._images + n_images, self._bytes + n_bytes
        self._admission.limits.check(images, all_bytes)
        self._admission.take(self.client, n_images, n_bytes, images)
        try:  # the first image was charged with the headers
            self._admission.charge_rate(self.client, n_images if self._images else n_images - 1)
        except RateLimited:
            self._admission.count(self.client, -n_images, -n_bytes)
            raise
        self._images, self._bytes = images, all_bytes

    def expect(self, images: int) -> None:
        """Raise Overloaded if this many images would wait for long or end too late."""
        if not self.in_background:
            self._admission.line.check(self.client, self.deadline, images)

    def turn(self, work: int) -> Turn:
        """Return the turn of an image that takes `work` microseconds of one core."""
        return Turn(self._admission.line, self, work)

    def standing(self) -> tuple[Lane, bool]:
        """Return the lane of the client's images, and whether others want something beside it.

        They are bulk if the client holds most of the images in flight, and more than keep the
        device busy if it is alone.
        """
        if self.in_background:
            return Lane.BACKGROUND, True
        return self._admission.standing(self.client)

    def release(self) -> None:
        """Release everything that is held; further calls have no effect."""
        if self._ended:
            return
        self._ended = True
        self._admission.count(self.client, -self._images, -self._bytes)
        self._arrived()
        self._admission.counters.add(Total.REQUESTS, -1)

    def _arrived(self) -> None:
        if self._charged:
            self._admission.count_arriving(self.client, -self._charged)
            self._charged = 0

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
        self.counters = counters = counters or Counters()
        self.line = FairLine(at_once or limits.images, cores, speed, clock, most_bulk, alone)
        self._busy_images = min(at_once or 1, limits.images)
        self.rate = rate
        self.clock = clock
        self.draining = False
        self._contended_until = -1.0

    def set_limits(self, settings: Settings) -> None:
        """Take the limits and the rate from other settings; admitted requests stay admitted."""
        self.limits = Limits.from_settings(settings)
        self.rate = Rate.parse(settings.rate_limit)

    def set_busy_images(self, at_once: int, alone: int) -> None:
        """Let more or fewer images through, because workers came or went."""
        self._busy_images = min(at_once, self.limits.images)
        self.line.set_images(at_once, alone, at_once)

    def enter(
        self,
        client: str = LOCAL,
        deadline: Deadline = NEVER,
        *,
        rated: bool = False,
        background: bool = False,
    ) -> Permit:
        """Return a permit for a request whose body may still have to come; it holds no image yet.

        A client that sends too much is refused before its bodies are read.
        `rated`: the request was charged against its client's rate. Raises Overloaded and
        RateLimited, and Draining; what is in the `background` is admitted in any case.
        """
        if not background:
            if self.draining:
                raise Draining("this server is stopping; ask another one")
            if not rated:
                self.charge_rate(client, 1)
            self.line.check(client, deadline)
        self.counters.add(Total.REQUESTS, 1)
        return Permit(self, client, deadline, background)

    def charge_rate(self, client: str, n_images: int) -> None:
        """Count images against the rate of a client; raises RateLimited."""
        rate = self.rate
        if rate is None or client == LOCAL or n_images <= 0 or not counts():
            return
        if wait := self.counters.rates.take(client, n_images, rate):
            raise RateLimited(
                f"{client} may send {rate.per_second:g} images a second and {rate.burst:g} at once "
                f"(DARKROOM_RATE_LIMIT); try again in {wait:.1f} seconds",
                retry_after=wait,
            )

    def take(self, client: str, n_images: int, n_bytes: int, of_request: int) -> None:
        """Count images and bytes as in flight for a client; raises Overloaded if they do not fit.

        With them its request has `of_request` images. A request that is alone may hold everything.
        """
        counters, limits, key = self.counters, self.limits, self.counters.key(f"client {client}")
        self.count(client, n_images, n_bytes)
        images, all_bytes = counters.total(Total.IMAGES), counters.total(Total.BYTES)
        own = counters.of(key, ByKey.IMAGES)
        if own < images:
            self._contended_until = self.clock() + CONTENDED
        if images > limits.images:
            reason = "images_in_flight"
        elif all_bytes > limits.bytes:
            reason = "bytes_in_flight"
        elif n_images and limits.client_images and own > limits.client_images:
            reason = "client_images"
        elif n_images and images > of_request and not within_share(own, images, limits.images):
            reason = "client_share"
        else:
            return
        self.count(client, -n_images, -n_bytes)
        raise self._overloaded(
            client,
            f"{images - n_images} images ({all_bytes - n_bytes} bytes) are in flight, "
            f"{own - n_images} of them yours; the limits are {limits.images} and {limits.bytes}",
            reason,
        )

    def count(self, client: str, n_images: int, n_bytes: int) -> None:
        """Add images and bytes, or subtract them, without regard to the limits."""
        if n_images:
            self.counters.add(Total.IMAGES, n_images)
            self.counters.add_for(self.counters.key(f"client {client}"), ByKey.IMAGES, n_images)
        if n_bytes:
            self.counters.add(Total.BYTES, n_bytes)

    def arrive(self, client: str, n_bytes: int, of_body: int) -> None:
        """Count bytes of a body that is still arriving; raises Overloaded if they do not fit.

        With them the body has `of_body` bytes. A body that is alone may take everything.
        """
        limits, counters, key = self.limits, self.counters, self.counters.key(f"client {client}")
        self.count_arriving(client, n_bytes)
        total, own = counters.total(Total.ARRIVING), counters.of(key, ByKey.ARRIVING)
        if total > limits.arriving:
            reason = "arriving_bytes"
        elif total > of_body and not within_share(own, total, limits.arriving):
            reason = "client_share"
        else:
            return
        self.count_arriving(client, -n_bytes)
        raise self._overloaded(
            client,
            f"{total - n_bytes} bytes of requests are arriving, {own - n_bytes} of them yours; "
            f"the limit is {limits.arriving}",
            reason,
        )

    def count_arriving(self, client: str, n_bytes: int) -> None:
        """Add bytes of bodies that are still arriving, or subtract them."""
        self.counters.add(Total.ARRIVING, n_bytes)
        self.counters.add_for(self.counters.key(f"client {client}"), ByKey.ARRIVING, n_bytes)

    def _overloaded(self, client: str, detail: str, reason: str) -> Overloaded:
        # Clients take turns: one with a small share gets a place as soon as anything ends.
        wait = self.line.wait(client) or 1.0
        return Overloaded(f"{detail}; try again later", retry_after=wait, reason=reason)

    def standing(self, client: str) -> tuple[Lane, bool]:
        """Return the lane of a client, and whether others want something; see `Permit.standing`."""
        total = self.counters.total(Total.IMAGES)
        own = self.counters.of(self.counters.key(f"client {client}"), ByKey.IMAGES)
        contended = own < total or self.clock() < self._contended_until
        most = own > 1 and 2 * own > total and (contended or own > self._busy_images)
        return (Lane.BULK if most else Lane.INTERACTIVE), contended
