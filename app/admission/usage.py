"""Report each limit and its use over all front ends, for metrics."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app.admission.counters import Total
from app.admission.permits import Admission


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
    pixels: Callable[[], int]
    fetches: Callable[[], int]
    codec_memory: Callable[[], int]
    unread: Callable[[], int]

    def uses(self) -> Iterator[Use]:
        """Yield each limit with its present use."""
        limits, total = self.admission.limits, self.admission.counters.total
        yield Use("images_in_flight", limits.images, total(Total.IMAGES))
        yield Use("bytes_in_flight", limits.bytes, total(Total.BYTES))
        yield Use("arriving_bytes", limits.arriving, total(Total.ARRIVING))
        yield Use("pixels_in_flight", self.pixels(), total(Total.PIXELS))
        yield Use("large_image_memory", self.codec_memory(), total(Total.LARGE_MEMORY))
        yield Use("huge_image_memory", self.codec_memory(), total(Total.HUGE_MEMORY))
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
        text = "Seconds of work that are done in a second while images wait: the cores, or fewer."
        yield "capacity", text, account.rate
        yield "line_images", "Images of this front end in line.", admission.line.waiting
