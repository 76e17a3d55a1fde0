"""The outcome of one image: labels, filtered versions, or an error."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.intake.item import Item
from app.pipeline.results.encoded_files import EncodedFile
from app.pipeline.results.timings import Timings
from models.codec import Description, ImageFormat
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
    """The outcome of one version, and the time of each stage."""

    id: str | None
    outcome: EncodedImage | ServiceError
    stages: Timings


@dataclass(frozen=True, slots=True)
class Processed:
    """The parts of one image, each with an outcome; `labels` is None if they were not wanted."""

    labels: Labels | Vector | ServiceError | None
    versions: tuple[VersionAnswer, ...]

    @property
    def errors(self) -> list[ServiceError]:
        """Return the errors of failed parts: that of the labels, then those of the versions."""
        outcomes = (self.labels, *(each.outcome for each in self.versions))
        return [each for each in outcomes if isinstance(each, ServiceError)]


AnswerOutcome = Labels | Vector | EncodedImage | Processed | Description | ServiceError


def images_of(outcome: AnswerOutcome) -> Iterator[tuple[int | None, EncodedImage]]:
    """Yield the files, each with the number of its version, or None for a single file."""
    if isinstance(outcome, EncodedImage):
        yield None, outcome
    elif isinstance(outcome, Processed):
        for number, each in enumerate(outcome.versions):
            if isinstance(each.outcome, EncodedImage):
                yield number, each.outcome


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one item, and the time of each stage."""

    item: Item
    outcome: AnswerOutcome
    stages: Timings

    @property
    def all_stages(self) -> list[Timings]:
        """Return the stopwatch of the item and those of its versions."""
        if isinstance(self.outcome, Processed):
            return [self.stages, *(each.stages for each in self.outcome.versions)]
        return [self.stages]

    @property
    def images(self) -> Iterator[tuple[int | None, EncodedImage]]:
        """Yield the files; see `images_of`."""
        return images_of(self.outcome)
