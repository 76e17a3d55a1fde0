"""The operations as declarations: classify, and a chain of filters. No torch, no CuPy."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from models.domain.errors import InvalidParameter
from models.domain.image import Subsampling
from models.domain.job import Job, Operation
from models.networks.registry import DEFAULT
from workers.filters.arithmetic.lookup_tables import ChainStep, steps
from workers.filters.registry import AnyFilter


class FunctionToApply(StrEnum):
    """What turns logits into scores (the words of Hugging Face's image-classification task)."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"
    NONE = "none"


class NetworkOutput(StrEnum):
    """The output of a network that is wanted of an image."""

    LABELS = "labels"
    """The best classes with their scores."""
    LOGITS = "logits"
    """The values of all classes in class order, before any function is applied."""
    EMBEDDING = "embedding"
    """The inputs of the last layer."""


@dataclass(frozen=True, slots=True)
class Classify:
    """Run an image through the network called `network`.

    `top_k` and `function_to_apply` are about labels alone.
    """

    top_k: int = 5
    function_to_apply: FunctionToApply = FunctionToApply.SOFTMAX
    network: str = DEFAULT
    output: NetworkOutput = NetworkOutput.LABELS

    @property
    def batch_key(self) -> Hashable:
        """Jobs for labels share a batch whatever their options: the forward pass is the same.

        Each network and each output has batches of its own.
        """
        return ("classify", self.network, self.output.value)


@dataclass(frozen=True, slots=True)
class DeviceJpeg:
    """Results are to be encoded on the GPU: baseline JPEGs of `quality` 1..100.

    Only RGB is: grey, alpha and what the device refuses come back as pixels.
    """

    quality: int
    subsampling: Subsampling


@dataclass(frozen=True, slots=True)
class FilterChain:
    """Filters applied in order, each to what the one before gave; `jpeg`: then encoded there.

    `steps` are what engines run: the filters, where neighbours that are tables are one table.
    """

    filters: tuple[AnyFilter, ...]
    jpeg: DeviceJpeg | None = None
    steps: tuple[ChainStep, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", steps(self.filters))

    @property
    def batch_key(self) -> Hashable:
        """The steps' names and passes in order; parameters may differ within a batch."""
        return ("filter", self.jpeg, *((step.name, step.device_passes) for step in self.steps))

    def sizes(self, height: int, width: int) -> Iterator[tuple[int, int]]:
        """Height and width after each filter; raises InvalidParameter where one cannot be."""
        for each in self.filters:
            height, width = each.size_after(height, width)
            yield height, width

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the result."""
        *_, size = self.sizes(height, width)
        return size

    def most_pixels(self, height: int, width: int) -> int:
        """Of the image, of what it becomes on the way and of the result: the largest."""
        return max(height * width, *(h * w for h, w in self.sizes(height, width)))


def most_pixels(job: Job) -> int:
    """Pixels of the largest image that a job makes; its own if it is going to fail."""
    image = job.image
    if not isinstance(job.operation, FilterChain):
        return image.n_pixels
    try:
        return job.operation.most_pixels(image.height, image.width)
    except InvalidParameter:
        return image.n_pixels


def kind_of(operation: Operation) -> tuple[str, str]:
    """Return the kind of work for metrics, and the network that does it (empty: none)."""
    if isinstance(operation, Classify):
        return "classify", operation.network
    return "filter", ""
