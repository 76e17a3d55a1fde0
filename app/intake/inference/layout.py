"""Check the shape of the one input tensor of a request: how many images, and how large each is."""

import math
from dataclasses import dataclass

from app.intake.inference.document import GivenTensor
from app.intake.inference.models import IMAGE, PIXELS, InferenceModel
from app.intake.item import check_count
from models.domain.errors import MalformedRequest, TooManyPixels
from models.settings import Settings

PREFIX = 4
"""Bytes of the length before each element of a BYTES tensor."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The images of an input: `n` of them.

    They are files if `height` is 0, else uint8 (height, width, 3) or, if `preprocessed`, float32
    (3, height, width).
    """

    n: int
    height: int = 0
    width: int = 0
    preprocessed: bool = False

    @property
    def n_bytes(self) -> int:
        """Return the bytes of an image that is no file."""
        return self.height * self.width * 3 * (4 if self.preprocessed else 1)


def layout_of(given: GivenTensor, model: InferenceModel, settings: Settings) -> Layout:
    """Return the layout of an input.

    Raises MalformedRequest for a shape that the input cannot have, TooLarge for too many images,
    and TooManyPixels.
    """
    shape = given.shape
    if any(length < 0 for length in shape):
        raise MalformedRequest(f"the shape of {given.name} has a negative number")
    (expected,) = (each.shape for each in model.inputs if each.name == given.name)
    if given.name == IMAGE and shape[1:] == [1]:
        shape = shape[:1]
    fits = len(shape) == len(expected) and all(
        want in (-1, length) for want, length in zip(expected, shape, strict=True)
    )
    if not fits:
        raise MalformedRequest(
            f"the input {given.name} has the shape {_shown(list(expected))}, where -1 is any size; "
            f"the request says {_shown(given.shape)}"
        )
    if shape[0] == 0:
        raise MalformedRequest(f"the input {given.name} has no images; its shape begins with 0")
    check_count(shape[0], settings)
    if given.name == IMAGE:
        return Layout(shape[0])
    if given.name == PIXELS:
        return _samples(shape, settings)
    return Layout(shape[0], shape[2], shape[3], preprocessed=True)


def _samples(shape: list[int], settings: Settings) -> Layout:
    n, height, width = shape[:3]
    if 0 in (height, width):
        raise MalformedRequest("the images of PIXELS have no pixels")
    if height * width > settings.max_pixels:
        raise TooManyPixels(
            f"an image has {height * width:,} pixels; one has at most {settings.max_pixels:,} "
            "(DARKROOM_MAX_PIXELS)"
        )
    return Layout(n, height, width)


def check_size(size: int, layout: Layout, name: str) -> None:
    """Raise MalformedRequest where `binary_data_size` is not what the shape says."""
    if layout.height and size != layout.n * layout.n_bytes:
        raise MalformedRequest(
            f"binary_data_size of {name} is {size}, but its shape has {layout.n * layout.n_bytes} "
            "bytes"
        )
    if not layout.height and size < layout.n * PREFIX:
        raise MalformedRequest(
            f"binary_data_size of {name} is {size}, but {layout.n} elements have at least "
            f"{layout.n * PREFIX} bytes: each begins with its length in {PREFIX}"
        )


def _shown(shape: list[int]) -> str:
    shown = ", ".join(str(length) for length in shape[:8] if abs(length) < 10**20)
    return f"[{shown}{', …' if len(shape) > 8 else ''}]"


def values_of(layout: Layout) -> int:
    """Return the numbers of the whole tensor."""
    return math.prod((layout.n, layout.height, layout.width, 3))
