"""Outcomes of images in a form that answers of other requests can be made of."""

from dataclasses import dataclass

from app.pipeline.results.encoded_files import EncodedFile, EncodedFiles
from app.pipeline.results.outcomes import AnswerOutcome, EncodedImage, Processed, VersionAnswer
from app.pipeline.results.timings import Timings
from models.codec import Description, ImageFormat
from models.domain.errors import Cancelled, ServiceError
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
    async def of(cls, image: EncodedImage) -> "ReusableImage":
        """Return the content of a file that was just made; raises Cancelled if it was dropped."""
        return cls(await image.file.read_all(), image.format, image.width, image.height)

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


def size_of(outcome: AnswerOutcome) -> int | None:
    """Return the bytes of an outcome by estimate, or None if it or a part of it is an error.

    Nothing is read for it.
    """
    if isinstance(outcome, Labels | Vector):
        return OVERHEAD + _size(outcome)
    if isinstance(outcome, EncodedImage):
        return OVERHEAD + outcome.file.size
    if isinstance(outcome, ServiceError | Description) or outcome.errors:
        return None
    labels = outcome.labels
    size = OVERHEAD + (_size(labels) if isinstance(labels, Labels | Vector) else 0)
    return size + sum(OVERHEAD + file.size for file in _files(outcome))


def on_disk(outcome: AnswerOutcome) -> bool:
    """Return whether a file of an outcome is on disk, because memory for answers is short."""
    return any(file.on_disk for file in _files(outcome))


async def reusable(outcome: AnswerOutcome) -> Reusable | None:
    """Return an outcome in this form, or None if a part is an error or a file cannot be read."""
    size = size_of(outcome)
    if size is None or isinstance(outcome, ServiceError | Description):
        return None
    try:
        return Reusable(await _content(outcome), size)
    except (Cancelled, OSError):  # it was dropped; the image itself is finished all the same
        return None


async def _content(
    outcome: Labels | Vector | EncodedImage | Processed,
) -> Labels | Vector | ReusableImage | ReusableParts:
    if isinstance(outcome, Labels | Vector):
        return outcome
    if isinstance(outcome, EncodedImage):
        return await ReusableImage.of(outcome)
    versions = []
    for each in outcome.versions:
        assert isinstance(each.outcome, EncodedImage)
        versions.append((each.id, await ReusableImage.of(each.outcome)))
    assert not isinstance(outcome.labels, ServiceError)
    return ReusableParts(outcome.labels, tuple(versions))


def _files(outcome: AnswerOutcome) -> list[EncodedFile]:
    """Return the files of an outcome."""
    if isinstance(outcome, EncodedImage):
        return [outcome.file]
    if not isinstance(outcome, Processed):
        return []
    images = (each.outcome for each in outcome.versions)
    return [image.file for image in images if isinstance(image, EncodedImage)]


def _size(labels: Labels | Vector) -> int:
    """Return the bytes of labels or of a vector, by estimate."""
    if isinstance(labels, Vector):
        return int(labels.values.nbytes)
    return PER_LABEL * len(labels.class_ids)
