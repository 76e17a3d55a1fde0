"""Compute how many pixels filters make of an image, and check that against the limit."""

from app.intake.wanted import Parts
from models.domain.errors import InvalidParameter, TooManyPixels
from workers.operations import FilterChain


def check(chain: FilterChain, max_pixels: int, height: int, width: int) -> int:
    """Return the pixels of the largest intermediate image; raises TooManyPixels or InvalidParameter
    if the chain cannot take an image of this size.
    """
    if (most := chain.most_pixels(height, width)) > max_pixels:
        raise TooManyPixels(
            f"the filters make {most:,} pixels of the image, more than the {max_pixels:,} "
            "allowed here; ask for fewer"
        )
    return most


def peak_pixels(chain: FilterChain, max_pixels: int, height: int, width: int) -> int:
    """Return the pixels of the largest intermediate image.

    If the chain will be refused, they are those of the image itself.
    """
    try:
        return check(chain, max_pixels, height, width)
    except (InvalidParameter, TooManyPixels):
        return height * width


def peak_pixels_of_parts(wanted: Parts, max_pixels: int, height: int, width: int) -> list[int]:
    """Return the largest number of pixels of each part that is wanted of an image."""
    labels = [] if wanted.labels is None else [height * width]
    return labels + [
        peak_pixels(each.operation, max_pixels, height, width) for each in wanted.versions
    ]
