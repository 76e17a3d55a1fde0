"""Give permits for requests, images, bytes and work: this is the only place that sheds load.

Behind it work waits (backpressure) and is bounded by its deadline, never refused.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from app.admission.account import HORIZON, Account
from app.admission.clients import LOCAL
from app.admission.counters import ByKey, Counters, Key, Mark, Rate, Total, now_ns
from app.admission.line import FairLine, Share
from app.admission.permit import Amount, Limits, Permit, within_share
from models.domain.deadline import NEVER, Deadline
from models.domain.errors import Draining, Overloaded, RateLimited
from models.domain.uncounted import counts
from models.settings import Settings

CONTENTION = 10_000_000_000
"""Nanoseconds after the refusal of one client in which no other client may hold everything."""

SHARED = 10.0
"""Seconds for which the server counts as shared after several clients had work."""

RESERVED = 2.0
"""Seconds after several clients had work in which one that holds more than half counts as bulk."""

MOST_TARGETS, LONGEST_TARGET = 512, 512
"""Paths with queries whose cost is remembered, and the bytes of one: clients choose them."""

IN_BODY = ("multipart/form-data", "application/json", "application/x-www-form-urlencoded")
"""Media types of bodies that may say what is wanted; for all others the path and query say it."""

INFERENCE = "/v2/"
"""Begins the paths of the Open Inference Protocol, whose inputs and outputs stand in the body."""

Target = tuple[str, bytes]
"""A path and a query. Requests for the same target want the same work, if their bodies say nothing
about that."""


def target_of(path: str, query: bytes, media_type: str) -> Target | None:
    """Return a request's target; None where its body may say what is wanted.

    `media_type` is that of the body, in lower case and without parameters.
    """
    in_body = media_type in IN_BODY or path[: len(INFERENCE)] == INFERENCE
    long = len(path) + len(query) > LONGEST_TARGET
    return None if in_body or long else (path, query)


class Admission:
    """Admits requests while the limits allow it and their deadlines can be met.

    `rate` is what one client may send. `account` is the work that was admitted, `line` is where it
    waits. Front ends with the same `counters` share the limits. Lives on one event loop.
    """

    def __init__(
        self,
        limits: Limits,
        counters: Counters | None = None,
        account: Account | None = None,
        line: FairLine | None = None,
        clock: Callable[[], float] = time.monotonic,
        rate: Rate | None = None,
        busy_images: int = 1,
    ) -> None:
        self.limits = limits
        self.counters = counters or Counters()
        self.account = account or Account(self.counters, 1, clock=clock)
        self.line = line or FairLine(limits.images)
        self.line.stay = self.account.stay
        self.clock = clock
        self.rate = rate
        self.busy_images = busy_images
        """Images that keep the server just busy."""
        self.background: Key | None = None
        """The client whose images take what others leave: the jobs."""
        self._reserved_until = self._foreground_until = -1.0
        self._key = lru_cache(4096)(lambda client: self.counters.key(f"client {client}"))
        self._targets: OrderedDict[Target, int] = OrderedDict()
        self.draining = False

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        at_once: int,
        counters: Counters,
        cores: int,
        speed: float = 1.0,
        most_bulk: int | None = None,
        alone: int = 0,
    ) -> "Admission":
        """Return admission with the limits of the settings; `at_once` images keep all cores busy.
        `most_bulk` and `alone` are explained in `FairLine`, `cores` and `speed` in `Account`.
        """
        account = Account(counters, cores, speed)
        line = FairLine(at_once, account.room, most_bulk=most_bulk, alone=alone)
        rate, busy = Rate.parse(settings.rate_limit), min(at_once, settings.max_images_in_flight)
        limits = Limits.from_settings(settings)
        return cls(limits, counters, account, line, rate=rate, busy_images=busy)

    def with_background(self, images: int) -> None:
        """Give images of jobs a line of their own: threads of low priority compute them.

        They take the time that nothing else wants, and no other image waits for them.
        """
        account = self.account
        self.line.behind = FairLine(
            images, lambda: HORIZON * account.cores / self.counters.front_ends
        )

    @property
    def held(self) -> Amount:
        """Images and bytes that all front ends have in flight."""
        total = self.counters.total
        return Amount(total(Total.IMAGES), total(Total.BYTES))

    def set_limits(self, settings: Settings) -> None:
        """Take the limits and the rate from other settings; admitted requests stay admitted."""
        self.limits = Limits.from_settings(settings)
        self.rate = Rate.parse(settings.rate_limit)

    def set_busy_images(self, at_once: int, alone: int) -> None:
        """Let more or fewer images through, because workers came or went."""
        self.busy_images = min(at_once, self.limits.images)
        self.account.set_cores(at_once)
        self.line.set_images(at_once, alone)

    def note_target(self, target: Target | None, work: int) -> None:
        """Remember the microseconds that an image of a request for `target` should take."""
        if target is None or not work:
            return
        self._targets[target] = work
        self._targets.move_to_end(target)
        if len(self._targets) > MOST_TARGETS:
            self._targets.popitem(last=False)

    def _work_of(self, target: Target | None) -> int:
        return 0 if target is None else self._targets.get(target, 0)

    def enter(
        self,
        client: str = LOCAL,
        deadline: Deadline = NEVER,
        rated: bool = False,
        target: Target | None = None,
    ) -> Permit:
        """Return a permit for a request whose body may still have to come; it holds no image yet.

        `rated`: the request was charged against its client's rate. The work that the last request
        for the same `target` took is reserved while the body arrives. Raises Overloaded, and
        Draining (not for jobs).
        """
        key = self._key(client)
        if self.draining and key != self.background:
            raise Draining("this server is stopping; ask another one")
        if not rated:
            self.charge_rate(client, 1)
        permit = Permit(self, client, key, deadline)
        if not permit.in_background:
            work = self._work_of(target)
            permit.must_end_in_time(work, work)
            permit.reserve(work)
        self.counters.add(Total.REQUESTS, 1)
        return permit

    def charge_rate(self, client: str, n_images: int) -> None:
        """Count images against the rate of a client; raises RateLimited."""
        rate = self.rate
        if rate is None or client == LOCAL or not n_images or not counts():
            return
        if wait := self.counters.rates.take(client, n_images, rate):
            raise RateLimited(
                f"{client} may send {rate.per_second:g} images a second and {rate.burst:g} at once "
                f"(DARKROOM_RATE_LIMIT); try again in {wait:.1f} seconds",
                retry_after=wait,
            )

    def admit(
        self, n_images: int, n_bytes: int, client: str = LOCAL, deadline: Deadline = NEVER
    ) -> Permit:
        """Return a permit that holds images and bytes from the start."""
        permit = self.enter(client, deadline)
        try:
            permit.grow(n_images, n_bytes)
        except BaseException:
            permit.release()
            raise
        return permit

    def take(self, key: Key, amount: Amount) -> None:
        """Count `amount` as in flight for a client; raises Overloaded if it does not fit."""
        counters = self.counters
        self._hold(key, amount.images, amount.bytes)
        images, n_bytes = counters.total(Total.IMAGES), counters.total(Total.BYTES)
        own = counters.of(key, ByKey.IMAGES)
        self._note_clients(key, own, images)
        error = self._over(key, amount, own, images, n_bytes)
        if error is not None:
            self.give_back(key, amount)
            raise error

    def look(self, key: Key, amount: Amount) -> None:
        """Raise what `Limits.fits` and `take` would raise for `amount` now; nothing is held."""
        self.limits.fits(amount)
        total = self.held + amount
        own = self.counters.of(key, ByKey.IMAGES) + amount.images
        error = self._over(key, amount, own, total.images, total.bytes)
        if error is not None:
            raise error

    def _over(
        self, key: Key, amount: Amount, own: int, images: int, n_bytes: int
    ) -> Overloaded | None:
        """Return the refusal of `amount`, which is counted in the client's and all images."""
        limits = self.limits
        if images > limits.images or n_bytes > limits.bytes:
            reason = "images_in_flight" if images > limits.images else "bytes_in_flight"
        elif amount.images and limits.client_images and own > limits.client_images:
            reason = "client_images"
        elif amount.images and not self._fair(own, images, limits.images):
            reason = "client_share"
        else:
            return None
        self._note_refused(own - amount.images, limits.images)
        return self._overloaded(
            key,
            f"{images - amount.images} images ({n_bytes - amount.bytes} bytes) are in flight, "
            f"{own - amount.images} of them yours; the limits are {limits.images} and "
            f"{limits.bytes}",
            reason,
        )

    def give_back(self, key: Key, amount: Amount) -> None:
        """Release an amount that `take` has counted."""
        self._hold(key, -amount.images, -amount.bytes)

    def arrive(self, key: Key, n_bytes: int) -> None:
        """Count bytes of a body that is still arriving; raises Overloaded if they do not fit."""
        limits, counters = self.limits, self.counters
        counters.add(Total.ARRIVING, n_bytes)
        counters.add_for(key, ByKey.ARRIVING, n_bytes)
        total, own = counters.total(Total.ARRIVING), counters.of(key, ByKey.ARRIVING)
        if total > limits.arriving:
            reason = "arriving_bytes"
        elif not self._fair(own, total, limits.arriving):
            reason = "client_share"
        else:
            return
        self.arrived(key, n_bytes)
        self._note_refused(own - n_bytes, limits.arriving)
        raise self._overloaded(
            key,
            f"{total - n_bytes} bytes of requests are arriving, {own - n_bytes} of them yours; "
            f"the limit is {limits.arriving}",
            reason,
        )

    def arrived(self, key: Key, n_bytes: int) -> None:
        """Release bytes of `arrive`: the body is complete, or the request has ended."""
        self.counters.add(Total.ARRIVING, -n_bytes)
        self.counters.add_for(key, ByKey.ARRIVING, -n_bytes)

    def _overloaded(self, key: Key, detail: str, reason: str) -> Overloaded:
        # Clients take turns: one with a small share gets a place as soon as anything ends.
        wait = self.account.wait(key, 0) or 1.0
        return Overloaded(f"{detail}; try again later", retry_after=wait, reason=reason)

    def _hold(self, key: Key, images: int, n_bytes: int) -> None:
        if images:
            self.counters.add(Total.IMAGES, images)
            self.counters.add_for(key, ByKey.IMAGES, images)
        if n_bytes:
            self.counters.add(Total.BYTES, n_bytes)

    # Shares of clients

    def _fair(self, own: int, total: int, limit: int) -> bool:
        """Return whether a client may hold `own` of the `total` amount that is held."""
        others = max(0, total - own)
        if within_share(own, others, limit, contended=True):
            return True
        contended = now_ns() - self.counters.newest(Mark.CONTENDED) < CONTENTION
        return within_share(own, others, limit, contended)

    def _note_refused(self, own: int, limit: int) -> None:
        """Note that a client with `own` was refused; large shares shrink if that is little."""
        if own * 16 <= limit:
            self.counters.mark(Mark.CONTENDED, now_ns())

    def _note_clients(self, key: Key, own: int, total: int) -> None:
        """Note that a client with `own` of the `total` images in flight asks for more."""
        now = self.clock()
        if own < total:
            self.account.shared_until = now + SHARED
        if key != self.background:
            self._foreground_until = now + RESERVED
            if own < total - self._in_background():
                self._reserved_until = now + RESERVED

    def share(self, key: Key) -> Share:
        """Return whether a client holds more than half of all images, and whether others want some.

        A client with one image is small, and so is one alone that keeps the device just busy. The
        one in the background is never small while others want some, and does not count for them.
        """
        total = self.counters.total(Total.IMAGES)
        own = self.counters.of(key, ByKey.IMAGES)
        if key == self.background:
            if own < total or self.clock() < self._foreground_until:
                return Share.BULK
            return Share.LARGE if own > self.busy_images else Share.SMALL
        total -= self._in_background()
        if own <= 1 or 2 * own <= total:
            return Share.SMALL
        if own < total or self.clock() < self._reserved_until:
            return Share.BULK
        return Share.LARGE if own > self.busy_images else Share.SMALL

    def _in_background(self) -> int:
        """Return the images in flight that take what others leave."""
        return 0 if self.background is None else self.counters.of(self.background, ByKey.IMAGES)


@dataclass(frozen=True, slots=True)
class Use:
    """The name of a limit, its value, and how much of it is in use."""

    name: str
    limit: int
    in_use: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The limits of a server; functions return those that admission does not hold."""

    admission: Admission
    fetches: Callable[[], int]
    memory: Callable[[], int]
    unread: Callable[[], int]

    def uses(self) -> Iterator[Use]:
        """Yield each limit with its present use."""
        limits, total = self.admission.limits, self.admission.counters.total
        yield Use("images_in_flight", limits.images, total(Total.IMAGES))
        yield Use("bytes_in_flight", limits.bytes, total(Total.BYTES))
        yield Use("arriving_bytes", limits.arriving, total(Total.ARRIVING))
        yield Use("image_memory", self.memory(), total(Total.MEMORY))
        yield Use("unread_bytes", self.unread(), total(Total.UNREAD))
        yield Use("fetch_concurrency", self.fetches(), total(Total.FETCHES))

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Yield name, explanation and value of each gauge of admission that has no limit."""
        admission = self.admission
        account, total = admission.account, admission.counters.total
        yield "in_flight_images", "Images admitted and not yet answered.", total(Total.IMAGES)
        yield "in_flight_bytes", "Upload bytes admitted and not yet answered.", total(Total.BYTES)
        text = "Requests for images, with those still arriving."
        yield "requests_under_way", text, total(Total.REQUESTS)
        yield "predicted_wait_seconds", "Time until all admitted work is done.", account.backlog()
        yield "line_images", "Images of this front end in line.", admission.line.waiting
