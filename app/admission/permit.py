"""Count what one request holds, from its headers to the end of its answer."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from app.admission.account import MICRO, TARGET, Expected, Kinds
from app.admission.counters import Key, Total
from app.admission.line import Place, Share
from models.domain.deadline import Deadline
from models.domain.errors import TooLarge
from models.domain.job import Lane
from models.settings import Settings

if TYPE_CHECKING:
    from app.admission.permits import Admission

RESERVED = 1.0
"""Seconds for which the work of a request is reserved while its body arrives. A body that was
announced may never come and costs its client nothing."""

SURE = 1.5
"""Times the work that was reserved for a request up to which it is admitted without a second look:
estimates vary."""

FIRST_CHARGE = 1 << 16
"""Bytes that are charged for the first byte of a body. The charge is doubled whenever the body is
longer, so that a body of any size takes few steps."""

Pixels = Callable[[], int | None]
"""Returns the pixels of an image as far as they are known."""


CLIENT_SHARE = 15
"""One client may hold this many times the free part of a limit, once others want something. So a
single client gets at most 15/16 of the limit, two get 15/31 each, and a part is always free for one
more (dynamic thresholds: Choudhury and Hahne, 1998, https://doi.org/10.1109/90.664262)."""


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

    def fits(self, amount: "Amount") -> None:
        """Raise TooLarge if even an idle server could not admit `amount`."""
        images, setting = self.images, "DARKROOM_MAX_IMAGES_IN_FLIGHT"
        if self.client_images and self.client_images < images:
            images, setting = self.client_images, "DARKROOM_MAX_IMAGES_PER_CLIENT"
        if amount.images > images or amount.bytes > self.bytes:
            raise TooLarge(
                f"{amount.images} images ({amount.bytes} bytes) never fit: the server holds "
                f"{images} images ({setting}) and {self.bytes} bytes "
                "(DARKROOM_MAX_BYTES_IN_FLIGHT); send smaller requests"
            )


@dataclass(frozen=True, slots=True)
class Amount:
    """Numbers of images and of upload bytes."""

    images: int
    bytes: int

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.images + other.images, self.bytes + other.bytes)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.images - other.images, self.bytes - other.bytes)


def within_share(own: int, others: int, limit: int, contended: bool) -> bool:
    """Return whether a client may hold `own` of a limit, of which others hold `others`.

    `own` includes the amount that is requested now. While no other client holds anything, and none
    was refused recently (`contended`), one client may hold the whole limit.
    """
    if not others and not contended:
        return True
    return own <= CLIENT_SHARE * max(0, limit - others - own + 1)


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
        self.in_background = key == admission.background
        """Whether the work takes only what others leave: that of jobs does."""
        self._size = self._charged = 0
        self._work = self._images = 0
        """Microseconds charged for images whose turn was not asked for yet, and their number."""
        self._reserved = 0
        self._timer: asyncio.TimerHandle | None = None
        """The id of the request, set where batches are listed with their requests."""
        self.each = 0
        """Microseconds that an image of the request was expected to take, even if refused."""
        self._ended = False

    def reserve(self, work: int) -> None:
        """Charge for work of a request whose body is still to come, for some time.

        Requests that come meanwhile must not be told that nothing is before them.
        """
        if work:
            self._reserved = work
            self._admission.account.charge(self._key, work, 1)
            self._timer = asyncio.get_running_loop().call_later(RESERVED, self._unreserve)

    def _unreserve(self) -> int:
        """Take back what was reserved; return it."""
        work, self._reserved = self._reserved, 0
        if work:
            self._admission.account.charge(self._key, -work, -1)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return work

    def arrives(self, n_bytes: int, announced: int) -> None:
        """Count bytes of the body that have arrived; raises Overloaded and TooLarge.

        `announced` is the size of the whole body, 0 if it is unknown. Bytes are charged as they
        come, never because they were announced.
        """
        self._size += n_bytes
        if self._size <= self._charged:
            return
        charge = max(self._charged, FIRST_CHARGE)
        while charge < self._size:
            charge *= 2
        charge = max(self._size, min(charge, announced or charge))
        if charge > self._admission.limits.arriving:
            raise TooLarge(
                f"a body of {charge} bytes never fits: the server takes in "
                f"{self._admission.limits.arriving} at a time, half of DARKROOM_MAX_BYTES_IN_FLIGHT"
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

    def foresee(self, n_images: int, kinds: Kinds, pixels: int | None = None) -> None:
        """Raise what `grow` and `expect` would raise now for images that are still arriving.

        Nothing is held or charged, because a body that trickles must not keep places from others.
        """
        each = int(self._admission.account.costs.estimate(kinds, pixels) * MICRO)
        self.must_end_in_time(each * n_images, each)
        self._admission.look(self._key, Amount(max(0, n_images - self._held.images), 0))

    def expect(self, kinds: Kinds, sizes: Sequence[int | None]) -> None:
        """Charge for work of these kinds on images of these pixels; raises Overloaded.

        The pixels of an image are None if its file does not show them. An image that must be
        fetched is charged when it has come, so it is none of these. Work that was reserved was
        admitted then, so requests that came later do not refuse it.
        """
        reserved = self._unreserve()
        if not sizes or self.in_background:
            return
        estimate = self._admission.account.costs.estimate
        each = [int(estimate(kinds, pixels) * MICRO) for pixels in sizes]
        work, largest = sum(each), max(each)
        self.each = largest
        if not reserved or work > SURE * reserved:
            self.must_end_in_time(work, largest)
        self._work += work
        self._images += len(each)
        self._admission.account.charge(self._key, work, len(each))

    def must_end_in_time(self, work: int, largest: int, longest: float = TARGET) -> None:
        """Raise Overloaded if `work` more microseconds of work would end after the deadline, or
        wait for more than `longest` seconds.
        """
        admission = self._admission
        remaining = self.deadline.remaining(admission.clock())
        error = admission.account.too_late(self._key, remaining, work, largest, longest)
        if error is not None:
            raise error

    def turn(self, kinds: Kinds, pixels: Pixels = lambda: None, *, batched: bool = False) -> "Turn":
        """Return the turn of one image among those of all clients, held while its block runs.

        `pixels` is asked when the image has come. `batched`: a CPU computes it sooner in a full
        batch.
        """
        return Turn(self, self._admission, Expected(self._key, kinds, pixels), batched=batched)

    def moved(self) -> int | None:
        """Return the microseconds that were charged for one image whose turn is asked for or that
        has ended; count them no more. None if none were charged.
        """
        if not self._images:
            return None
        part = self._work // self._images
        self._work -= part
        self._images -= 1
        return part

    @property
    def lane(self) -> Lane:
        """Background for jobs; bulk if the client holds most of the images in flight, while others
        want something or images of it wait in line: fewer ones make larger batches in one lane.
        """
        if self.in_background:
            return Lane.BACKGROUND
        share = self.share()
        waits = share is Share.LARGE and self._admission.line.waits(self.client)
        return Lane.BULK if share is Share.BULK or waits else Lane.INTERACTIVE

    def share(self, *, batched: bool = False) -> Share:
        """Return how much of the server the client holds; `batched` as in `turn`."""
        share = self._admission.share(self._key)
        return Share.FILLING if batched and share is Share.LARGE else share

    def release(self) -> None:
        """Release everything that is held; further calls have no effect."""
        if self._ended:
            return
        self._ended = True
        admission = self._admission
        admission.give_back(self._key, self._held)
        self._held = Amount(0, 0)
        if self._charged:
            self._arrived()
        self._unreserve()
        admission.account.charge(self._key, -self._work, -self._images)
        self._work = self._images = 0
        admission.counters.add(Total.REQUESTS, -1)

    def _arrived(self) -> None:
        self._admission.arrived(self._key, self._charged)
        self._charged = 0

    def __enter__(self) -> "Permit":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Turn:
    """The turn of one image in the fair line, and the account of its work while it has one.

    It is an asynchronous context manager, and no generator because those are slower.
    """

    __slots__ = ("_admission", "_asked", "_batched", "_image", "_line", "_permit", "_place")

    def __init__(
        self, permit: Permit, admission: "Admission", image: Expected, *, batched: bool
    ) -> None:
        self._permit = permit
        self._admission = admission
        self._image = image
        self._batched = batched
        self._line = (admission.line.behind if permit.in_background else None) or admission.line
        self._asked = False
        self._place: Place | None = None

    async def take(self) -> None:
        """Wait for a place; raises Overloaded if the image cannot end before its deadline."""
        account, image, permit = self._admission.account, self._image, self._permit
        if self._line is not self._admission.line:
            self._place = await self._line.take(permit.client, self._estimate, permit.deadline)
            return
        charged = None if self._asked else permit.moved()
        self._asked = True
        if not permit.in_background:  # nothing waits for work in the background
            image.charged = int(self._estimate() * MICRO)
            if charged is None:
                permit.must_end_in_time(image.charged, image.charged, longest=math.inf)
        account.wait_for_turn(image, charged)
        share = partial(permit.share, batched=self._batched)
        try:
            self._place = await self._line.take(
                permit.client, self._estimate, permit.deadline, share
            )
        except BaseException:
            account.end(image, completed=False)
            raise
        account.begin(image)

    __aenter__ = take

    def _estimate(self) -> float:
        image = self._image
        return self._admission.account.costs.estimate(image.kinds, image.pixels())

    def leave(self, *, completed: bool = False) -> None:
        """Give the place to other images for good; the image may take another one later."""
        place, self._place = self._place, None
        if place is None:
            return
        if self._line is self._admission.line:
            self._admission.account.end(self._image, completed=completed)
        self._line.leave(place)

    def end(self) -> None:
        """Note that the image has ended; its work is charged no more if it asked for no place."""
        if not self._asked and (charged := self._permit.moved()) is not None:
            self._admission.account.charge(self._image.key, -charged, -1)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave(completed=error is None)
