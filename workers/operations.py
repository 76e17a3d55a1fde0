"""The operations as declarations: classification and chains of filters. They need no torch or
CuPy.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum

from models.domain.errors import InvalidParameter
from models.domain.image import Subsampling
from models.domain.job import Job, Operation
from models.networks.registry import DEFAULT
from workers.filters import bands
from workers.filters.base import Filter, steps
from workers.kernels.items import Shape


class FunctionToApply(StrEnum):
    """The function that turns logits into scores, named as in Hugging Face's image-classification
    task.
    """

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"
    NONE = "none"


class NetworkOutput(StrEnum):
    """The output of a network that a request asks for."""

    LABELS = "labels"
    """The best classes with their scores."""
    LOGITS = "logits"
    """The values of all classes in class order, before any function is applied."""
    EMBEDDING = "embedding"
    """The inputs of the last layer."""


@dataclass(frozen=True, slots=True)
class Classify:
    """Run an image through the network called `network`.

    `top_k` and `function_to_apply` apply to labels only. `preprocessed`: the job carries a
    `NetworkInput` in place of an image.
    """

    top_k: int = 5
    function_to_apply: FunctionToApply = FunctionToApply.SOFTMAX
    network: str = DEFAULT
    output: NetworkOutput = NetworkOutput.LABELS
    preprocessed: bool = False
    batch_key: Hashable = field(init=False, repr=False, compare=False)
    """The key of jobs that may share a batch: jobs of the same network, output and kind of
    input.

    Options of labels are not part of it, because the forward pass is the same. Keys are looked up
    some ten times an image, so they are made once, of values that are hashed without Python code.
    """

    def __post_init__(self) -> None:
        kind = "preprocessed" if self.preprocessed else "classify"
        object.__setattr__(self, "batch_key", (kind, self.network, self.output.value))


@dataclass(frozen=True, slots=True)
class DeviceJpeg:
    """Baseline JPEGs of `quality` 1…100, as which a GPU may give results, with the bytes of
    `models.codec.encoder`.

    Results that a GPU leaves out, and all results of CPUs, come back as pixels.
    """

    quality: int
    subsampling: Subsampling


@dataclass(frozen=True, slots=True)
class FilterChain:
    """Filters that are applied in order, each to the result of the filter before.

    With `jpeg`, a GPU then encodes the result. `steps` are the steps that engines run: the
    filters, with each run of neighbouring tables as one table. `batch_key` has the names and passes
    of the steps; parameters may differ within a batch. `measuring` is the index of the first filter
    that `measures`, or None.
    """

    filters: tuple[Filter, ...]
    jpeg: DeviceJpeg | None = None
    steps: tuple[Filter, ...] = field(init=False, repr=False, compare=False)
    batch_key: Hashable = field(init=False, repr=False, compare=False)
    measuring: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        measuring = (index for index, each in enumerate(self.filters) if each.measures)
        object.__setattr__(self, "measuring", next(measuring, None))
        object.__setattr__(self, "steps", steps(self.filters))
        passes = ((step.name, step.device_passes) for step in self.steps)
        object.__setattr__(self, "batch_key", ("filter", self.jpeg, *passes))

    def shape_after(self, shape: Shape) -> Shape:
        """Return (height, width, channels) of the result for an image of this shape.

        The filter `trim` counts as if it cut nothing away. Raises InvalidParameter if a filter
        cannot be applied to its input.
        """
        for each in self.filters:
            shape = each.shape_after(shape)
        return shape

    def memory(self, shape: Shape, *, overwrite: bool = False) -> int:
        """Return the most bytes that the CPU takes at a time for an image of this shape, by
        estimate: the source, the input of a filter, and the result of that filter.

        `overwrite`: the source may be overwritten, as it is of a job that owns it. A filter that
        measures pixels begins a job of its own, whose source is the input of that filter.
        """
        source = math.prod(shape)
        most = held = source
        kept = 0 if overwrite else source
        for each in self.steps:
            if each.measures and each is not self.steps[0]:
                source = held = kept + math.prod(shape)
            most = max(most, held + bands.memory(each, shape, overwrite=overwrite))
            in_place = overwrite and bands.overwrites(each, shape)
            shape = each.shape_after(shape)
            if not in_place:
                held, overwrite = source + math.prod(shape), True
        return most

    def most_pixels(self, height: int, width: int) -> int:
        """Return the pixels of the largest image on the way: source, intermediate results and
        result.

        Raises InvalidParameter if a filter cannot be applied to its input.
        """
        most = height * width
        for each in self.filters:
            height, width = each.size_after(height, width)
            most = max(most, height * width)
        return most


def most_pixels(job: Job) -> int:
    """Return the pixels of the largest image that a job makes; of its own image if the job will
    fail.
    """
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
