"""The errors of files that would cost too much: the finding, the limit, and advice."""

from models.domain.errors import TooManyPixels, Undecodable


def too_many(format: str, found: str, allowed: str) -> Undecodable:
    """Return the error of a container that has more parts than an encoder ever writes."""
    return Undecodable(f"the {format} has {found}, and {allowed}; save it anew")


def too_large(width: int, height: int, max_pixels: int) -> TooManyPixels:
    """Return the error of an image over the limit of pixels."""
    return TooManyPixels(
        f"the image has {width} × {height} pixels, more than the {max_pixels:,} "
        "allowed here; send it smaller"
    )
