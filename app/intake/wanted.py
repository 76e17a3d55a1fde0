"""What a request wants of every image: labels, filtered versions, and how to encode them."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from models.codec import Encoding, ImageFormat
from models.domain.errors import ServiceError
from workers.operations import Classify, FilterChain


@dataclass(frozen=True, slots=True)
class Output:
    """What a filtered image is to be encoded as; `choose` gets the source's format."""

    choose: Callable[[ImageFormat], ImageFormat]
    encoding: Encoding

    def format_for(self, source: ImageFormat) -> ImageFormat:
        """The format of the answer; raises where that one cannot be what is asked for."""
        chosen = self.choose(source)
        self.encoding.check(chosen)
        return chosen


@dataclass(frozen=True, slots=True)
class Version:
    """One filtered version that is wanted of every image; `id` is the client's own."""

    operation: FilterChain
    output: Output
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Parts that are wanted of every image; `labels` may be the error that stands in for them."""

    labels: Classify | ServiceError | None
    versions: tuple[Version, ...]

    @property
    def n_parts(self) -> int:
        """Labels are one part, each version is one."""
        return (self.labels is not None) + len(self.versions)

    @property
    def kinds(self) -> list[Hashable]:
        """The kinds of work that the parts are."""
        labels = [self.labels.batch_key] if isinstance(self.labels, Classify) else []
        return [*labels, *(each.operation.batch_key for each in self.versions)]
