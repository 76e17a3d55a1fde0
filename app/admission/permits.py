"""Give permits for requests, images, bytes and work: this is the only place that sheds load.

Behind it work waits (backpressure) and is bounded by its deadline, never refused.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache

from app.admission.clients import LOCAL
from app.admission.counts.contention import Contention
from app.admission.counts.counters import Counters, Key
from app.admission.counts.fields import ByKey, Total
from app.admission.counts.limits import Amount, Limits
from app.admission.counts.rates import Rate
from app.admission.line.line import FairLine
from app.admission.permit import Permit
from app.admission.prediction.forecast import Forecast
from app.admission.prediction.reservations import Reservations
from app.admission.prediction.targets import Target, TargetKinds
from models.domain.deadline import NEVER, Deadline
from models.domain.errors import Draining, Overloaded, RateLimited
from models.settings import Settings


class Admission:
    """Admits requests while the limits allow it and their deadlines can be met.

    `rate` is what one client may send. `forecast` predicts how long admitted work waits, `line` is
    where it waits. Front ends with the same `counters` share the limits. Lives on one event loop.
    """

    def __init__(
        self,
        limits: Limits,
        counters: Counters | None = None,
        forecast: Forecast | None = None,
        line: FairLine | None = None,
        clock: Callable[[], float] = time.monotonic,
        rate: Rate | None = None,
    ) -> None:
        self.limits = limits
        self.counters = counters or Counters()
        self.forecast = forecast or Forecast(self.counters, busy_images=1)
        self.line = line or FairLine(limits.images)
        self.forecast.overtaking = self.line.overtaking
        self.clock = clock
        self.rate = rate
        self.unsure: set[Permit] = set()
        """Permits for work of which some kind had an unknown cost when they were given."""
        self._key = lru_cache(4096)(lambda client: self.counters.key(f"client {client}"))
        self.targets = TargetKinds()
        self.reservations = Reservations(self.forecast, clock)
        self._contention = Contention(self.counters)
        self.entered = 0
        """Permits that were given: where it has grown, a decision of `refusal` is out of date."""
        self.draining = False

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        at_once: int,
        counters: Counters,
        most_bulk: int | None = None,
        alone: int = 0,
    ) -> "Admission":
        """Return admission with the limits of the settings; `at_once` images keep all cores busy.
        `most_bulk` and `alone` are explained in `FairLine`.
        """
        forecast = Forecast(counters, min(at_once, settings.max_images_in_flight))
        room, wait = forecast.room, forecast.wait_here
        line = FairLine(at_once, room, wait, most_bulk=most_bulk, alone=alone)
        rate = Rate.parse(settings.rate_limit)
        return cls(Limits.from_settings(settings), counters, forecast, line, rate=rate)

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
        self.forecast.set_busy_images(min(at_once, self.limits.images))
        self.line.set_images(at_once, alone)

    def refusal(
        self, client: str, seconds: float, n_bytes: int | None, target: Target | None
    ) -> Overloaded | None:
        """Return why a request of at least one image is refused by its headers, None if it is not.

        `seconds` are those before its deadline, `n_bytes` those of its body as far as it says (None
        for a stream, whose images wait for room), `target` its path and query if they say what is
        wanted. Nothing is held. Only the refusal of a small share is noted, as `take` does.
        """
        key = self._key(client)
        work, latency = self.forecast.least_work(self.targets.of(target))
        error = self.forecast.too_late(key, seconds, work, latency, client)
        if error is not None or n_bytes is None:
            return error
        return self._would_be_over(key, Amount(1, n_bytes))

    def enter(
        self,
        client: str = LOCAL,
        deadline: Deadline = NEVER,
        rated: bool = False,
        kinds: Sequence[Hashable] | None = None,
        foreseen: int | None = None,
    ) -> Permit:
        """Return a permit for a request whose body may still have to come; it holds no image yet.

        `rated`: the request was charged against its client's rate. `kinds` are those of its work
        if its headers tell them; with None no work is reserved. `foreseen` is what `entered` was
        when `refusal` found that its work ends in time. Raises Overloaded, and Draining (no jobs).
        """
        if self.draining and self._key(client) != self.forecast.background:
            raise Draining("this server is stopping; ask another one")
        permit = Permit(self, client, self._key(client), deadline)
        if not rated:
            self.charge_rate(client, 1)
        if foreseen != self.entered:
            permit.must_end_in_time()
        self.entered += 1
        permit.begin(kinds)
        return permit

    def estimate_again(self) -> None:
        """Charge again for all work whose cost was unknown, because a cost has been learnt."""
        for permit in list(self.unsure):
            permit.estimate_again()

    def charge_rate(self, client: str, n_images: int) -> None:
        """Count images against the rate of a client; raises RateLimited."""
        rate = self.rate
        if rate is None or client == LOCAL or not n_images:
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
        self.forecast.note_clients(key, own, images)
        error = self._over(key, amount, own, images, n_bytes)
        if error is not None:
            self.give_back(key, amount)
            raise error

    def look(self, key: Key, amount: Amount) -> None:
        """Raise what `Limits.fits` and `take` would raise for `amount` now; nothing is held."""
        self.limits.fits(amount)
        if (error := self._would_be_over(key, amount)) is not None:
            raise error

    def _would_be_over(self, key: Key, amount: Amount) -> Overloaded | None:
        total = self.held + amount
        own = self.counters.of(key, ByKey.IMAGES) + amount.images
        return self._over(key, amount, own, total.images, total.bytes)

    def _over(
        self, key: Key, amount: Amount, own: int, images: int, n_bytes: int
    ) -> Overloaded | None:
        """Return the refusal of `amount`, which is counted in the client's and all images."""
        limits = self.limits
        if images > limits.images or n_bytes > limits.bytes:
            reason = "images_in_flight" if images > limits.images else "bytes_in_flight"
        elif amount.images and limits.client_images and own > limits.client_images:
            reason = "client_images"
        elif amount.images and not self._contention.fair(own, images, limits.images):
            reason = "client_share"
        else:
            return None
        self._contention.note(own - amount.images, limits.images)
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
        elif limits.client_bytes and own > limits.client_bytes:
            reason = "client_bytes"
        elif not self._contention.fair(own, total, limits.arriving):
            reason = "client_share"
        else:
            return
        self.arrived(key, n_bytes)
        self._contention.note(own - n_bytes, limits.arriving)
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
        wait = self.forecast.wait(key, 0) or 1.0
        return Overloaded(f"{detail}; try again later", retry_after=wait, reason=reason)

    def _hold(self, key: Key, images: int, n_bytes: int) -> None:
        if images:
            self.counters.add(Total.IMAGES, images)
            self.counters.add_for(key, ByKey.IMAGES, images)
        if n_bytes:
            self.counters.add(Total.BYTES, n_bytes)
