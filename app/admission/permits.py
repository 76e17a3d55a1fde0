"""The door: permits for images and for bytes in flight. The only place that sheds load.

Behind it work waits (backpressure) and is bounded by its deadline, never refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from app.admission.counters import Counters
from app.admission.fields import Total
from models.errors import Draining, Overloaded, TooLarge


class Admission:
    """Counts what is in flight, over all front ends with the same `counters`.

    `service_rate` tells images per second, for an honest Retry-After; `on_change` gets the images
    and bytes that this front end has in flight.
    """

    def __init__(
        self,
        max_images: int,
        max_bytes: int,
        service_rate: Callable[[], float],
        on_change: Callable[[int, int], None] = lambda images, n_bytes: None,
        counters: Counters | None = None,
    ) -> None:
        self._limits = Amount(max_images, max_bytes)
        self._service_rate = service_rate
        self._on_change = on_change
        self._counters = counters or Counters()
        self._own = Amount(0, 0)
        self.draining = False

    @property
    def held(self) -> "Amount":
        """What all front ends have in flight."""
        total = self._counters.total
        return Amount(total(Total.IMAGES), total(Total.BYTES))

    def admit(self, n_images: int, n_bytes: int) -> "Permit":
        """A permit to hold while the request is worked on; raises Overloaded or Draining."""
        if self.draining:
            raise Draining("this server is stopping; ask another one")
        permit = Permit(self)
        permit.grow(n_images, n_bytes)
        return permit

    def take(self, amount: "Amount") -> None:
        """Count `amount` more in flight; raises Overloaded when it does not fit."""
        limits = self._limits
        self._hold(amount)
        held = self.held
        if held.images > limits.images or held.bytes > limits.bytes:
            self._hold(Amount(0, 0) - amount)
            held, rate = held - amount, self._service_rate()
            wait = held.images / rate if rate > 0 else 1.0
            raise Overloaded(
                f"{held.images} images ({held.bytes} bytes) are in flight; "
                f"the limits are {limits.images} and {limits.bytes}; try again later",
                retry_after=wait,
            )

    def fits(self, amount: "Amount") -> None:
        """Raise TooLarge when `amount` could not be admitted even by an idle server."""
        limits = self._limits
        if amount.images > limits.images or amount.bytes > limits.bytes:
            raise TooLarge(
                f"{amount.images} images ({amount.bytes} bytes) never fit: the server holds "
                f"{limits.images} images (DARKROOM_MAX_IMAGES_IN_FLIGHT) and {limits.bytes} bytes "
                "(DARKROOM_MAX_BYTES_IN_FLIGHT); send smaller requests"
            )

    def give_back(self, amount: "Amount") -> None:
        """The reverse of `take`."""
        self._hold(Amount(0, 0) - amount)

    def _hold(self, amount: "Amount") -> None:
        self._own += amount
        self._counters.add(Total.IMAGES, amount.images)
        self._counters.add(Total.BYTES, amount.bytes)
        self._on_change(self._own.images, self._own.bytes)


@dataclass(frozen=True, slots=True)
class Amount:
    """Images and upload bytes."""

    images: int
    bytes: int

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.images + other.images, self.bytes + other.bytes)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.images - other.images, self.bytes - other.bytes)


class Permit:
    """What one request holds; given back when its `with` block ends, whatever happened."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._held = Amount(0, 0)

    def grow(self, n_images: int, n_bytes: int) -> None:
        """Hold more: the images found in the body, the bytes downloaded."""
        if not (n_images or n_bytes):
            return
        more = Amount(n_images, n_bytes)
        self._admission.fits(self._held + more)
        self._admission.take(more)
        self._held += more

    def __enter__(self) -> "Permit":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._admission.give_back(self._held)
        self._held = Amount(0, 0)
