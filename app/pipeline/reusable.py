"""Outcomes of images in a form that answers of other requests can be made of."""

from dataclasses import dataclass

from app.pipeline.encoded_files import EncodedFiles
from app.pipeline.outcomes import AnswerOutcome, EncodedImage, Processed, VersionAnswer
from app.pipeline.timings import Timings
from models.codec import Description, ImageFormat
from models.domain.errors import ServiceError
from models.domain.job import Labels, Vector

OVERHEAD = 512
"""Estimated bytes of a result beside its content: its key, its objects, its place in the order."""

PER_LABEL = 80
"""Estimated bytes of one class id with its score."""


@dataclass(frozen=True, slots=True)
class ReusableImage:
    """The bytes of an encoded image with its format, and its size in pixels."""

    data: bytes
    format: ImageFormat
    width: int
    height: int

    @classmethod
    def of(cls, image: EncodedImage) -> "ReusableImage":
        """Return the content of a file that was just made."""
        return cls(image.file.read(), image.format, image.width, image.height)

    def image(self, files: EncodedFiles) -> EncodedImage:
        """Return the image as a file of another answer; the bytes are not copied."""
        return EncodedImage(files.keep(self.data), self.format, self.width, self.height)


@dataclass(frozen=True, slots=True)
class ReusableParts:
    """All parts of an image: its labels or vector, and the versions with the client's ids."""

    labels: Labels | Vector | None
    versions: tuple[tuple[str | None, ReusableImage], ...]


@dataclass(frozen=True, slots=True)
class Reusable:
    """A good outcome; `size` is the bytes that it takes, by estimate."""

    content: Labels | Vector | ReusableImage | ReusableParts
    size: int

    def outcome(self, files: EncodedFiles) -> AnswerOutcome:
        """Return the outcome for another answer; raises Overloaded if its files do not fit."""
        content = self.content
        if isinstance(content, ReusableImage):
            return content.image(files)
        if isinstance(content, ReusableParts):
            parts = ((id_, image.image(files)) for id_, image in content.versions)
            versions = tuple(VersionAnswer(id_, image, Timings()) for id_, image in parts)
            return Processed(content.labels, versions)
        return content


def reusable(outcome: AnswerOutcome) -> Reusable | None:
    """Return an outcome in this form, or None if it is an error or a part of it is one."""
    if isinstance(outcome, Labels | Vector):
        return Reusable(outcome, OVERHEAD + _size(outcome))
    if isinstance(outcome, EncodedImage):
        image = ReusableImage.of(outcome)
        return Reusable(image, OVERHEAD + len(image.data))
    if isinstance(outcome, ServiceError | Description) or isinstance(outcome.labels, ServiceError):
        return None
    versions = []
    for each in outcome.versions:
        if isinstance(each.outcome, ServiceError):
            return None
        versions.append((each.id, ReusableImage.of(each.outcome)))
    size = sum(OVERHEAD + len(image.data) for _, image in versions)
    labels = outcome.labels
    size += OVERHEAD + (0 if labels is None else _size(labels))
    return Reusable(ReusableParts(labels, tuple(versions)), size)


def _size(labels: Labels | Vector) -> int:
    """Return the bytes of labels or of a vector, by estimate."""
    if isinstance(labels, Vector):
        return int(labels.values.nbytes)
    return PER_LABEL * len(labels.class_ids)
