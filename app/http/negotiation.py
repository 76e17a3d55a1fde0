"""Content negotiation by the Accept header (RFC 9110, section 12.5.1). Knows no formats of ours."""

from collections.abc import Sequence


def best(header: str | None, offers: Sequence[str]) -> str | None:
    """The offer the client likes best, the earlier one on a tie; None when it takes none.

    `offers` are media types, most preferred first. No header means anything is welcome.
    """
    if not header or header == "*/*":
        return next(iter(offers), None)
    ranges = _parse(header)
    ranked = [(_quality(offer, ranges), -rank, offer) for rank, offer in enumerate(offers)]
    quality, _, offer = max(ranked, default=(0.0, 0, ""))
    return offer if quality > 0 else None


def names(header: str | None, media_type: str) -> bool:
    """Whether the client asks for exactly this type, not by a wildcard."""
    return any(name == media_type and q > 0 for name, q in _parse(header or ""))


def _parse(header: str) -> list[tuple[str, float]]:
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
    return ranges


def _quality(offer: str, ranges: Sequence[tuple[str, float]]) -> float:
    """The q of the most specific range that covers the offer."""
    for wanted in (offer, offer.split("/")[0] + "/*", "*/*"):
        for name, quality in ranges:
            if name == wanted:
                return quality
    return 0.0
