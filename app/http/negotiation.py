"""Content negotiation by the Accept header (RFC 9110, section 12.5.1), for any media types."""

from collections.abc import Sequence
from functools import lru_cache

REMEMBERED = 256
"""Characters of the longest header whose parsed form is kept: a client chooses its header, so what
is kept of 128 headers must stay small."""

Ranges = tuple[tuple[str, float], ...]
"""The media ranges of a header, each with its quality from 0 to 1."""


def best(header: str | None, offers: Sequence[str]) -> str | None:
    """Return the offer of the highest quality, the earlier one on a tie; None: none is acceptable.

    `offers` are media types, most preferred first. Without a header every offer is acceptable.
    """
    if takes_all(header):
        return next(iter(offers), None)
    ranges = _ranges(header or "")
    ranked = [(_quality(offer, ranges), -rank, offer) for rank, offer in enumerate(offers)]
    quality, _, offer = max(ranked, default=(0.0, 0, ""))
    return offer if quality > 0 else None


def names(header: str | None, media_type: str) -> bool:
    """Return whether the header names exactly this type; a wildcard does not count."""
    return any(name == media_type and q > 0 for name, q in _ranges(header or ""))


def takes_all(header: str | None) -> bool:
    """Return whether the header is missing, empty or `*/*`, as it is for most clients."""
    return not header or header == "*/*"


def _ranges(header: str) -> Ranges:
    return _remembered(header) if len(header) <= REMEMBERED else _parse(header)


def _parse(header: str) -> Ranges:
    ranges = []
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
            ranges.append((name, quality))
    return tuple(ranges)


_remembered = lru_cache(128)(_parse)


def _quality(offer: str, ranges: Ranges) -> float:
    """Return the quality of the most specific range that covers the offer, 0 without one."""
    for wanted in (offer, offer.split("/", 1)[0] + "/*", "*/*"):
        for name, quality in ranges:
            if name == wanted:
                return quality
    return 0.0
