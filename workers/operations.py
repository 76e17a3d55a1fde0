"""The operations as declarations: classify, and a chain of filters. No torch, no CuPy."""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum

from workers.filters import AnyFilter


class FunctionToApply(StrEnum):
    """What turns logits into scores (the words of Hugging Face's image-classification task)."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Classify:
    """The `top_k` best classes; jobs with different options still share a batch."""

    top_k: int = 5
    function_to_apply: FunctionToApply = FunctionToApply.SOFTMAX

    @property
    def batch_key(self) -> Hashable:
        """One batch for all of them: the forward pass is the same."""
        return "classify"


@dataclass(frozen=True, slots=True)
class FilterChain:
    """Filters applied in order, each to what the one before gave."""

    filters: tuple[AnyFilter, ...]

    @property
    def batch_key(self) -> Hashable:
        """The names in order; parameters may differ within a batch."""
        return ("filter", *(f.name for f in self.filters))

    @property
    def has_kernels(self) -> bool:
        """Whether a GPU can run all of them."""
        return all(f.passes for f in self.filters)
