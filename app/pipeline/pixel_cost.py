"""What filters make of an image, in pixels: how much memory that takes, and whether it may be."""

from app.intake.wanted import Parts
from models.domain.errors import InvalidParameter, TooManyPixels
from workers.operations import FilterChain


def check(chain: FilterChain, max_pixels: int, height: int, width: int) -> None:
    """Raises TooManyPixels or InvalidParameter where an image of this size is not for the chain."""
    if (most := chain.most_pixels(height, width)) > max_pixels:
        raise TooManyPixels(
            f"the filters make {most:,} pixels of the image, more than the {max_pixels:,} "
            "allowed here; ask for fewer"
        )


def peak_pixels(chain: FilterChain, max_pixels: int, height: int, width: int) -> int:
    """Pixels of the largest image on the way; the image's own where the chain will be refused."""
    try:
        check(chain, max_pixels, height, width)
        return chain.most_pixels(height, width)
    except (InvalidParameter, TooManyPixels):
        return height * width


def peak_pixels_of_parts(wanted: Parts, max_pixels: int, height: int, width: int) -> list[int]:
    """Of every part that is wanted of an image."""
    labels = [] if wanted.labels is None else [height * width]
    return labels + [
        peak_pixels(each.operation, max_pixels, height, width) for each in wanted.versions
    ]
