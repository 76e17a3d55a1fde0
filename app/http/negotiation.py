"""Content negotiation (RFC 9110): media types of answers, the Accept header, and ETags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from models.domain.errors import HeadersTooLarge

JSON = "application/json"
JSON_LINES = ("application/x-ndjson", "application/jsonl")
EVENTS = "text/event-stream"
ZIP = "application/zip"
MULTIPART = "multipart/mixed"

STREAMS = (*JSON_LINES, EVENTS, ZIP, MULTIPART)
"""Containers of any number of answers, which are sent as they finish."""

IMAGE = "image/*"
"""The bytes of one image, in whatever format it is encoded."""


MOST_PARTS = 200
"""Media ranges and parameters of a header, all together; browsers send about 15."""


@dataclass(frozen=True, slots=True)
class Accept:
    """A parsed header: the quality of each media range, from 0 to 1; none accept everything.

    Where the header has a range twice, the first counts.
    """

    ranges: Mapping[str, float] = field(default_factory=dict)

    @property
    def takes_all(self) -> bool:
        """Return whether the header is missing, empty or `*/*`, as it is for most clients."""
        return not self.ranges or self.ranges == {"*/*": 1.0}

    def best(self, offers: Sequence[str]) -> str | None:
        """Return the offer of the highest quality, the earlier offer on a tie; None: no
        offer is acceptable.

        `offers` are media types, most preferred first.
        """
        if self.takes_all:
            return next(iter(offers), None)
        ranked = [(self._quality(offer), -rank, offer) for rank, offer in enumerate(offers)]
        quality, _, offer = max(ranked, default=(0.0, 0, ""))
        return offer if quality > 0 else None

    def names(self, media_type: str) -> bool:
        """Return whether the header names exactly this type; a wildcard does not count."""
        return self.ranges.get(media_type, 0.0) > 0

    def _quality(self, offer: str) -> float:
        """Return the quality of the most specific range that covers the offer, or 0."""
        for wanted in (offer, offer.split("/", 1)[0] + "/*", "*/*"):
            if wanted in self.ranges:
                return self.ranges[wanted]
        return 0.0


EVERYTHING = Accept()
"""The Accept header of a client that sends none."""


@lru_cache(128)
def parse(header: str | None) -> Accept:
    """Parse a header, once for each request; raise HeadersTooLarge if it has too many parts.

    RFC 9110, section 5.4, asks for an error where a field is larger than a server wishes to
    process: to ignore the rest could choose a type that the client ruled out there.
    """
    if not header or header == "*/*":
        return EVERYTHING
    if header.count(",") + header.count(";") >= MOST_PARTS:
        raise HeadersTooLarge(
            f"Accept may have {MOST_PARTS} media ranges and parameters; name fewer types"
        )
    ranges: dict[str, float] = {}
    for part in header.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = min(1.0, max(0.0, float(parameter[2:])))
                except ValueError:
                    quality = 0.0
        if name:
            ranges.setdefault(name, quality)
    return Accept(ranges)


def names(if_none_match: str, etag: str) -> bool:
    """Return whether `If-None-Match` lists the ETag itself; `*` lists none. Both may be weak."""
    tags = [each.strip().removeprefix("W/") for each in if_none_match.split(",")]
    return etag.removeprefix("W/") in tags
