"""A typed request: its images, and what is wanted of each, independent of HTTP.

`/classify` wants labels (`Classify`), `/v2` perhaps of tensors (`ClassifyTensors`); `/filter` one
filtered version (`Version`), `/process` several parts of both kinds (`Parts`), and `/info` a
description (`Describe`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.admission import Permit
from app.admission.account import Kind, Kinds
from app.intake.item import Item, Url
from app.intake.output_format import OutputFormat
from app.intake.spool import Blob
from models.codec import Encoding, ImageFormat, claimed_pixels
from models.codec.costs import START
from models.domain.errors import ServiceError
from workers.filters.registry import nanoseconds
from workers.operations import Classify, FilterChain

NETWORK = 0.02
"""Seconds that a network is expected to take for an image on one core."""


@dataclass(frozen=True, slots=True)
class Output:
    """The file that a filtered image becomes: its format and the options of its encoder."""

    format: OutputFormat
    encoding: Encoding

    def format_for(self, source: ImageFormat) -> ImageFormat:
        """Return the format of the answer for an image of the format `source`.

        Raises NotAcceptable, and InvalidParameter if the format lacks one of the encoder options.
        """
        chosen = self.format.of(source)
        self.encoding.check(chosen)
        return chosen


@dataclass(frozen=True, slots=True)
class Version:
    """One filtered version of an image; `id` is the client's own name of it."""

    operation: FilterChain
    output: Output
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """Several parts of one image: labels and versions.

    `labels` is None if they are not wanted; it is an error if they are wanted and cannot be had.
    """

    labels: Classify | ServiceError | None
    versions: tuple[Version, ...]

    @property
    def n_parts(self) -> int:
        """Return the number of parts: 1 for labels, and 1 for each version."""
        return (self.labels is not None) + len(self.versions)


@dataclass(frozen=True, slots=True)
class Describe:
    """The description of a file; its dominant `colour` is the only part that needs pixels."""

    colour: bool = True


@dataclass(frozen=True, slots=True)
class ClassifyTensors:
    """What is wanted of images that come as tensors of one shape, not as files.

    The content of each is uint8 (height, width, 3) in RGB or, for an operation that is
    `preprocessed`, float32 (3, height, width), little-endian.
    """

    operation: Classify
    height: int
    width: int

    @property
    def n_pixels(self) -> int:
        """Return the pixels that an image counts as: 4 bytes each where it is preprocessed."""
        return self.height * self.width * (3 if self.operation.preprocessed else 1)

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the content of an image."""
        return self.height * self.width * 3 * (4 if self.operation.preprocessed else 1)


Wanted = Classify | ClassifyTensors | Version | Parts | Describe
"""What is wanted of every image of a request."""


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """A whole request as the pipeline takes it."""

    items: tuple[Item, ...]
    wanted: Wanted

    @property
    def count(self) -> int:
        """Return the number of images the request counts as: each part of an image is one."""
        return len(self.items) * images_of_each(self.wanted)

    @property
    def has_urls(self) -> bool:
        """Return whether an image has to be fetched."""
        return any(isinstance(item.content, Url) for item in self.items)

    @property
    def kinds(self) -> Kinds:
        """Return the kinds of work that every image needs."""
        return kinds(self.wanted)

    def sizes(self, most: int) -> Sequence[int | None]:
        """Return the pixels of each image that has come; see `pixels_of`."""
        known = known_pixels(self.wanted)
        contents = (item.content for item in self.items)
        return [known or pixels_of(each, most) for each in contents if isinstance(each, Blob)]

    @property
    def network(self) -> str | None:
        """Return the name of the network that will be asked, None if none will be."""
        wanted = self.wanted.labels if isinstance(self.wanted, Parts) else self.wanted
        if isinstance(wanted, ClassifyTensors):
            wanted = wanted.operation
        return wanted.network if isinstance(wanted, Classify) else None


@dataclass(frozen=True, slots=True)
class Admitted:
    """An image of a stream with its permit; one that admission refused is an error without."""

    item: Item
    permit: Permit | None

    def release(self) -> None:
        """Release the permit; may be called again."""
        if self.permit is not None:
            self.permit.release()


def images_of_each(wanted: Wanted) -> int:
    """Return the number of images that one image counts as: each of its parts is one."""
    return wanted.n_parts if isinstance(wanted, Parts) else 1


def kinds(wanted: Wanted) -> Kinds:
    """Return the kinds of work that one image needs."""
    if isinstance(wanted, Classify):
        return (_network(wanted),)
    if isinstance(wanted, ClassifyTensors):
        return (_network(wanted.operation),)
    if isinstance(wanted, Version):
        return (_filters(wanted.operation),)
    if isinstance(wanted, Describe):
        return ()
    labels = (_network(wanted.labels),) if isinstance(wanted.labels, Classify) else ()
    return (*labels, *(_filters(each.operation) for each in wanted.versions))


def _network(operation: Classify) -> Kind:
    return Kind(operation.batch_key, NETWORK)


def _filters(chain: FilterChain) -> Kind:
    """Return the kind of a chain; parameters that make it much slower make another kind."""
    expected = 2.0 ** round(math.log2(nanoseconds(chain.filters)))
    return Kind(chain.batch_key, nanoseconds=expected)


def pixels_of(content: Blob, most: int) -> int | None:
    """Return the pixels of an image by the start of its file.

    They are None where the file does not show them, and where it claims more than `most`: such an
    image will be refused, and what it claims must not count as work that others wait for.
    """
    claimed = claimed_pixels(content.start(START))
    return claimed if claimed is not None and claimed <= most else None


def known_pixels(wanted: Wanted) -> int | None:
    """Return the pixels of each image where the request says them, None where its file does."""
    return wanted.n_pixels if isinstance(wanted, ClassifyTensors) else None
