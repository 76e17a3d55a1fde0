"""Make the record of an item, the same in a reply, a stream, a ZIP and on the command line."""

import base64
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from fastapi import Request

from app.http.problems import problem
from app.pipeline.results.encoded_files import EncodedFile
from app.pipeline.results.outcomes import Answer, EncodedImage, Processed, VersionAnswer
from models.api.schemas import (
    FilteredImage,
    ImageDescription,
    Prediction,
    Record,
    Summary,
    VersionRecord,
)
from models.codec import Description
from models.domain.errors import ServiceError
from models.domain.job import Labels, Vector
from models.labels import LabelSet
from workers.operations import NetworkOutput

PIECE = 3 << 16
"""Number of bytes that are encoded at a time, in 0.3 ms: a multiple of three, so that only the last
piece is padded."""

_MARK = f"{secrets.token_hex(16)}:"
"""Prefix of all marks. It never leaves the process, so no client can write it into a text."""

_MARKS = re.compile(re.escape(_MARK.encode()) + rb"([0-9]+)\.")


class InlineImages:
    """The images of one JSON text."""

    def __init__(self) -> None:
        self._images: list[EncodedFile] = []

    def add(self, file: EncodedFile) -> str:
        """Return the mark of an image, which the JSON contains until it is sent."""
        self._images.append(file)
        return f"{_MARK}{len(self._images) - 1}."

    def size(self, text: bytes) -> int:
        """Return the number of bytes of all `pieces` together."""
        if not self._images:
            return len(text)
        marks = _MARKS.finditer(text)
        return len(text) + sum((self._image(m).size + 2) // 3 * 4 - len(m[0]) for m in marks)

    def pieces(self, text: bytes) -> Iterator[bytes]:
        """Yield the text with base64 in place of the marks."""
        if not self._images:
            yield text  # there are no marks to search for
            return
        place = 0
        for mark in _MARKS.finditer(text):
            yield text[place : mark.start()]
            place = mark.end()
            file = self._image(mark)
            for start in range(0, file.size, PIECE):
                yield base64.b64encode(file.read(start, PIECE))
        yield text[place:]

    def _image(self, mark: re.Match[bytes]) -> EncodedFile:
        return self._images[int(mark[1])]


@dataclass(frozen=True, slots=True)
class VectorStyle:
    """The key of a record that holds the vector of an image, and the form of its value.

    As base64 it is float32, little-endian, in standard base64 with padding. As numbers it is a
    JSON list whose numbers are exactly the float32 values.
    """

    output: NetworkOutput
    as_base64: bool

    def add(self, record: Record, vector: Vector) -> None:
        """Put the vector of an image into its record."""
        values: list[float] | str = vector.values.tolist()
        if self.as_base64:
            values = base64.b64encode(vector.values.astype("<f4").tobytes()).decode()
        if self.output is NetworkOutput.LOGITS:
            record.logits = values
        else:
            record.embedding = values

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "VectorStyle":
        """Read the style from the options of a request, which were checked before."""
        if "output" not in options:
            return NO_VECTORS
        output = NetworkOutput(options["output"])
        return cls(output, options.get("vector_format") == "base64")


NO_VECTORS = VectorStyle(NetworkOutput.LABELS, as_base64=False)
"""The style of answers without vectors."""


def record(
    answer: Answer,
    labels: LabelSet | None = None,
    request: Request | None = None,
    *,
    name: str | None = None,
    inline: InlineImages | None = None,
    vectors: VectorStyle = NO_VECTORS,
) -> Record:
    """Return an answer as a record.

    Its images are files of this `name`, and are added to `inline` where that is given; logits and
    embeddings are written as `vectors` says.
    """
    item, outcome = answer.item, answer.outcome
    made = _with_labels(answer, labels)
    if isinstance(outcome, Labels):
        return made
    shown = partial(_shown, name=name, inline=inline)
    if isinstance(outcome, EncodedImage):
        made.image = shown(outcome)
    elif isinstance(outcome, Description):
        made.info = ImageDescription(**asdict(outcome))
    elif isinstance(outcome, Processed):
        made.versions = [
            _version(number, version, request, item.index, shown)
            for number, version in enumerate(outcome.versions)
        ]
        _add_labels(made, outcome.labels, labels, request, vectors)
        made.status = "partial" if outcome.errors else "ok"
    else:
        _add_labels(made, outcome, labels, request, vectors)
    return made


def _with_labels(answer: Answer, labels: LabelSet | None) -> Record:
    """Return the record of an answer, complete if that is labels.

    They are given as values: pydantic makes all models of a record in one call.
    """
    found: dict[str, object] = {
        "index": answer.item.index,
        "id": answer.item.id,
        "source": answer.item.source,
        "status": "ok",
        "timing": answer.stages.milliseconds(),
    }
    if isinstance(answer.outcome, Labels):
        assert labels is not None
        found["predictions"] = _predictions(answer.outcome, labels)
    return Record.model_validate(found)


def file_name(name: str, image: EncodedImage, version: int | None = None) -> str:
    """Return the name of a file: the `name` of its image, its version, and the suffix of its
    format.
    """
    return (name if version is None else f"{name}-{version}") + image.format.extension


def _predictions(found: Labels, labels: LabelSet) -> list[dict[str, object]]:
    """Return class ids and scores with the names of the classes, as values of predictions."""
    names, wnids = labels.labels, labels.wnids
    return [
        {"label": names[n], "wnid": wnids[n], "class_id": n, "score": score}
        for n, score in zip(found.class_ids, found.scores, strict=True)
    ]


def summary(records: list[Record]) -> Summary:
    """Return how many images succeeded and how many failed."""
    succeeded = sum(r.status == "ok" for r in records)
    return Summary(total=len(records), succeeded=succeeded, failed=len(records) - succeeded)


def line(made: Record) -> bytes:
    """Return a record as one line of JSON."""
    return made.model_dump_json(exclude_none=True).encode() + b"\n"


def _add_labels(
    made: Record,
    found: Labels | Vector | ServiceError | None,
    labels: LabelSet | None,
    request: Request | None,
    vectors: VectorStyle,
) -> None:
    """Add the output of a network, or the error that there is instead."""
    if isinstance(found, ServiceError):
        made.status = "error"
        made.error = problem(found, request, made.index)
    elif isinstance(found, Vector):
        vectors.add(made, found)
    elif found is not None:
        assert labels is not None
        made.predictions = [Prediction.model_validate(x) for x in _predictions(found, labels)]


def _version(
    number: int,
    version: VersionAnswer,
    request: Request | None,
    index: int,
    shown: Callable[[EncodedImage, int], FilteredImage],
) -> VersionRecord:
    made = VersionRecord(
        index=number, id=version.id, status="ok", timing=version.stages.milliseconds()
    )
    if isinstance(version.outcome, ServiceError):
        made.status = "error"
        made.error = problem(version.outcome, request, index)
    else:
        made.image = shown(version.outcome, number)
    return made


def _shown(
    image: EncodedImage,
    version: int | None = None,
    *,
    name: str | None,
    inline: InlineImages | None,
) -> FilteredImage:
    return FilteredImage(
        media_type=image.format.media_type,
        width=image.width,
        height=image.height,
        bytes=image.file.size,
        name=None if name is None else file_name(name, image, version),
        data=None if inline is None else inline.add(image.file),
    )
