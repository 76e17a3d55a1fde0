"""What is asked for one image, and what became of it: labels, filtered versions, errors."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from app.intake.request_items import Item
from app.pipeline.timings import Stages
from models.codec import Encoding, ImageFormat
from models.domain.errors import ServiceError
from models.domain.job import Labels
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


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """A filtered image as a file."""

    data: bytes
    format: ImageFormat
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class VersionAnswer:
    """What became of one version, and where its time went."""

    id: str | None
    outcome: EncodedImage | ServiceError
    stages: Stages


@dataclass(frozen=True, slots=True)
class Processed:
    """The parts of one image, each with its own outcome; `labels` is None if nobody wanted them."""

    labels: Labels | ServiceError | None
    versions: tuple[VersionAnswer, ...]

    @property
    def errors(self) -> list[ServiceError]:
        """Of the parts that failed: the labels', then the versions' in order."""
        outcomes = (self.labels, *(each.outcome for each in self.versions))
        return [each for each in outcomes if isinstance(each, ServiceError)]


Outcome = Labels | EncodedImage | Processed | ServiceError


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one item, and where its time went."""

    item: Item
    outcome: Outcome
    stages: Stages

    @property
    def all_stages(self) -> list[Stages]:
        """Its own stopwatch and those of its versions."""
        versions = self.outcome.versions if isinstance(self.outcome, Processed) else ()
        return [self.stages, *(each.stages for each in versions)]

    @property
    def images(self) -> Iterator[tuple[int | None, EncodedImage]]:
        """The files it gave, each with the number of its version; None: there are no versions."""
        if isinstance(self.outcome, EncodedImage):
            yield None, self.outcome
        elif isinstance(self.outcome, Processed):
            for number, each in enumerate(self.outcome.versions):
                if isinstance(each.outcome, EncodedImage):
                    yield number, each.outcome
