"""Count what one request holds, from its headers to the end of its answer."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from app.admission.counts.counters import Key
from app.admission.counts.fields import Total
from app.admission.counts.limits import Amount
from app.admission.line.places import Share, small
from app.admission.line.turn import Turn
from app.admission.prediction.capacity import MICRO
from app.admission.prediction.cost import ImageCost
from app.admission.prediction.expected_work import ExpectedWork
from app.admission.prediction.reservations import PART, Reservation
from app.admission.work import Work
from models.domain.deadline import Deadline
from models.domain.errors import TooLarge
from models.domain.job import Lane, Trace

if TYPE_CHECKING:
    from app.admission.permits import Admission

FIRST_CHARGE = 1 << 16
"""Bytes that are charged for the first byte of a body. The charge is doubled whenever the body is
longer, so that a body of any size takes few steps."""

Pixels = Callable[[], int | None]
"""Returns the pixels of an image as far as they are known."""

SURE = 1.5
"""Times the work that was reserved for a request up to which it is admitted without a second look:
estimates vary."""


class Permit:
    """Permit of one request: holds images, bytes and work until its `with` block ends.

    `deadline` is that of the request, `client` its client; `fetches_for` pays for fetched URLs.
    """

    def __init__(self, admission: "Admission", client: str, key: Key, deadline: Deadline) -> None:
        self._admission = admission
        self.client = self.fetches_for = client
        self._key = key
        self.deadline = deadline
        self._held = Amount(0, 0)
        self.in_background = key == admission.forecast.background
        """Whether the work takes only what others leave: that of jobs does."""
        self._behind = admission.line.behind if self.in_background else None
        self._began = False
        self._size = self._charged = 0
        self._probable: Sequence[Hashable] | None = None
        self._reservation: Reservation | None = None
        self._expected = ExpectedWork(admission.forecast, admission.counters, key)
        self.request_id = ""
        """The id of the request, set where batches are listed with their requests."""
        self.kinds: tuple[Hashable, ...] = ()
        """The kinds of work that the request asked for, even if they were refused."""

    def begin(self, kinds: Sequence[Hashable] | None) -> None:
        """Count the request as in progress. Work of `kinds` is reserved while its body arrives.

        Requests that come meanwhile must not be told that nothing is before them. What `expect`
        charges takes its place; a body that is slow to arrive loses it (`reservations.py`).
        """
        self._admission.counters.add(Total.REQUESTS, 1)
        self._began = True
        self._probable = kinds

    def arrives(self, n_bytes: int, announced: int) -> None:
        """Count bytes of the body that have arrived; raises Overloaded and TooLarge.

        `announced` is the size of the whole body, 0 if it is unknown. Bytes are charged as they
        come, never because they were announced.
        """
        self._size += n_bytes
        if self._probable is not None and 0 < announced <= PART * self._size:
            self._reservation = self._admission.reservations.reserve(self._key, self._probable)
            self._probable = None
        if self._size <= self._charged:
            return
        charge = max(self._charged, FIRST_CHARGE)
        while charge < self._size:
            charge *= 2
        charge = max(self._size, min(charge, announced or charge))
        if charge > self._admission.limits.arriving:
            raise TooLarge(
                f"a body of {charge} bytes never fits: the server takes in "
                f"{self._admission.limits.arriving} (DARKROOM_MAX_ARRIVING_BYTES) at a time"
            )
        self._admission.arrive(self._key, charge - self._charged)
        self._charged = charge

    def complete(self, n_bytes: int, held: int | None = None) -> None:
        """Count the last bytes of the body; now it is admitted, with one image of `held` bytes."""
        self._size += n_bytes
        if self._charged:
            self._arrived()
        self.grow(1, self._size if held is None else held)

    def grow(self, n_images: int, n_bytes: int) -> None:
        """Hold more images, which were found in the body, or more bytes, which were downloaded."""
        if not (n_images or n_bytes):
            return
        more = Amount(n_images, n_bytes)
        held = self._held + more
        self._admission.limits.fits(held)
        if self._held.images:  # the first image was charged with the headers
            self._admission.charge_rate(self.client, n_images)
        self._admission.take(self._key, more)
        self._held = held

    def foresee(self, n_images: int, *kinds: Hashable) -> None:
        """Raise what `grow` and `expect` would raise now for images that are still arriving.

        Nothing is held or charged, because a body that trickles must not keep places from others.
        """
        costs, admission = self._admission.forecast.costs, self._admission
        work = int(n_images * sum(map(costs.estimate, kinds)) * MICRO)
        self.must_end_in_time(work, max(map(costs.latency, kinds), default=0.0))
        admission.look(self._key, Amount(max(0, n_images - self._held.images), 0))

    def expect(self, n_images: int, *kinds: Hashable) -> None:
        """Charge for work of these kinds on each of `n_images` images; raises Overloaded.

        Work that was reserved was admitted then, so requests that came later do not refuse it.
        """
        forecast, self.kinds = self._admission.forecast, kinds
        work = int(n_images * sum(map(forecast.costs.estimate, kinds)) * MICRO)
        reserved = self._reservation.end() if self._reservation is not None else 0
        if not reserved or work > SURE * reserved:
            self.must_end_in_time(work, max(map(forecast.costs.latency, kinds), default=0.0))
        self._expected.add(n_images, kinds, work)
        if not all(map(forecast.costs.knows, kinds)):
            self._admission.unsure.add(self)
        forecast.capacity.look()

    def estimate_again(self) -> None:
        """Charge the expected work again, because the cost of some kind has been learnt."""
        self._expected.estimate_again()

    @contextmanager
    def awaiting(self) -> Iterator[None]:
        """Count one image as waiting for its origin while the block runs.

        An origin may answer late: its work is not before others, and the server not busy with it.
        """
        self._expected.awaits(1)
        try:
            yield
        finally:
            self._expected.awaits(-1)

    def answered(self, n_images: int) -> None:
        """Count one item of the request as answered; it counts as `n_images` images.

        They are held until the answer is sent, but no work on them is left.
        """
        if self._began:
            self._expected.answered(n_images, self._held.images)

    def must_end_in_time(self, work: int = 0, latency: float = 0.0) -> None:
        """Raise Overloaded if `work` more microseconds of work would end after the deadline."""
        admission = self._admission
        remaining = self.deadline.remaining(admission.clock())
        error = admission.forecast.too_late(self._key, remaining, work, latency, self.client)
        if error is not None:
            raise error

    def turn(self, *kinds: Hashable, pixels: Pixels = lambda: None, batched: bool = False) -> Turn:
        """Return the turn of one image among those of all clients, held while its block runs.

        `pixels` is asked when the image must wait. `batched`: a CPU computes it sooner in a full
        batch.
        """
        cost = ImageCost(self._admission.forecast.costs, kinds, pixels)
        client, deadline, behind = self.client, self.deadline, self._behind
        line = behind or self._admission.line
        share = small if behind else partial(self._share, batched)
        return line.turn(client, cost.estimate, deadline, share, cost.measured, cost.group)

    @property
    def lane(self) -> Lane:
        """Background for jobs; bulk if the client holds most of the images in flight, while others
        want something or images of it wait in line: fewer ones make larger batches in one lane.
        """
        if self.in_background:
            return Lane.BACKGROUND
        share = self._share()
        waits = share is Share.LARGE and self._admission.line.waits(self.client)
        return Lane.BULK if share is Share.BULK or waits else Lane.INTERACTIVE

    def _share(self, batched: bool = False) -> Share:
        share = self._admission.forecast.share(self._key)
        return Share.FILLING if batched and share is Share.LARGE else share

    def work(self, kind: Hashable, pixels: int) -> Work:
        """Return the work on one image of known size; it ends with its `with` block."""
        admission, before = self._admission, self._expected.begin(kind)
        now = int(admission.forecast.costs.estimate(kind, pixels) * MICRO)
        if now != before:
            admission.forecast.charge(self._key, now - before)
        wait = admission.forecast.wait_here(admission.line.past)
        work = Work(self, kind, pixels, now, admission.clock() + wait)
        admission.forecast.capacity.begin(work)
        return work

    def end(self, work: Work, trace: Trace | None, expired: bool = False) -> None:
        """End the work on one image; with a trace it was completed, and its cost is learnt."""
        forecast = self._admission.forecast
        forecast.capacity.end(work)
        forecast.charge(self._key, -work.charged)
        costs, new = forecast.costs, not forecast.costs.knows(work.kind)
        learns = new or self._behind is None  # else it took also the time of others
        if expired and learns:
            costs.expired(work.kind, work.pixels, self._admission.clock() - work.starts)
        if trace is not None:
            kind, pixels = work.kind, work.pixels
            done = costs.learn(kind, pixels, trace) if learns else costs.estimate(kind, pixels)
            if new:
                self._admission.estimate_again()
            forecast.done(int(done * MICRO))

    def release(self) -> None:
        """Release everything that is held; further calls have no effect."""
        admission = self._admission
        if not self._began:
            return
        admission.give_back(self._key, self._held)
        self._held = Amount(0, 0)
        if self._charged:
            self._arrived()
        self._expected.end()
        if self._reservation is not None:
            self._reservation.end()
        admission.unsure.discard(self)
        admission.counters.add(Total.REQUESTS, -1)
        self._began = False

    def _arrived(self) -> None:
        self._admission.arrived(self._key, self._charged)
        self._charged = 0

    def __enter__(self) -> "Permit":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
