"""What is asked for one image, and what became of it: labels, filtered versions, errors."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.intake.request_items import Item
from app.pipeline.encoded_files import EncodedFile
from app.pipeline.timings import Timings
from models.codec import ImageFormat
from models.domain.errors import ServiceError
from models.domain.job import Labels, Vector


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """A filtered image as a file."""

    file: EncodedFile
    format: ImageFormat
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class VersionAnswer:
    """What became of one version, and where its time went."""

    id: str | None
    outcome: EncodedImage | ServiceError
    stages: Timings


@dataclass(frozen=True, slots=True)
class Processed:
    """The parts of one image, each with its own outcome; `labels` is None if nobody wanted them."""

    labels: Labels | Vector | ServiceError | None
    versions: tuple[VersionAnswer, ...]

    @property
    def errors(self) -> list[ServiceError]:
        """Of the parts that failed: the labels', then the versions' in order."""
        outcomes = (self.labels, *(each.outcome for each in self.versions))
        return [each for each in outcomes if isinstance(each, ServiceError)]


AnswerOutcome = Labels | Vector | EncodedImage | Processed | ServiceError


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one item, and where its time went."""

    item: Item
    outcome: AnswerOutcome
    stages: Timings

    @property
    def all_stages(self) -> list[Timings]:
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
