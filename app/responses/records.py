"""Make the record of an item, the same in a reply, a stream, a ZIP and on the command line."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial

from fastapi import Request

from app.http.problems import problem
from app.pipeline.results.outcomes import Answer, EncodedImage, Processed, VersionAnswer
from app.responses.inline_images import InlineImages
from app.responses.vectors import NO_VECTORS, VectorStyle
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
