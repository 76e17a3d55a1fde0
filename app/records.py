"""Per-item records: the same in a reply, a stream, a ZIP and on the command line."""

import base64

from fastapi import Request

from app.pipeline import Answer, EncodedImage
from app.problems import problem
from models.errors import ServiceError
from models.job import Labels
from models.labels import LabelSet
from models.schemas import FilteredImage, Prediction, Record, Summary


def record(
    answer: Answer,
    labels: LabelSet | None = None,
    request: Request | None = None,
    *,
    member: str | None = None,
    inline: bool = False,
) -> Record:
    """An answer as a record. A filtered image is named `member`, or carried `inline` as base64."""
    item, outcome = answer.item, answer.outcome
    made = Record(
        index=item.index,
        id=item.id,
        source=item.source,
        status="error" if isinstance(outcome, ServiceError) else "ok",
        timing=answer.stages.milliseconds(),
    )
    if isinstance(outcome, ServiceError):
        made.error = problem(outcome, request, item.index)
    elif isinstance(outcome, EncodedImage):
        made.image = FilteredImage(
            media_type=outcome.format.media_type,
            width=outcome.width,
            height=outcome.height,
            bytes=len(outcome.data),
            name=member,
            data=base64.b64encode(outcome.data).decode() if inline else None,
        )
    else:
        assert labels is not None
        made.predictions = predictions(outcome, labels)
    return made


def predictions(found: Labels, labels: LabelSet) -> list[Prediction]:
    """Class ids and scores with their names."""
    return [
        Prediction(label=labels.labels[n], wnid=labels.wnids[n], class_id=n, score=score)
        for n, score in zip(found.class_ids, found.scores, strict=True)
    ]


def summary(records: list[Record]) -> Summary:
    """How many succeeded."""
    succeeded = sum(r.status == "ok" for r in records)
    return Summary(total=len(records), succeeded=succeeded, failed=len(records) - succeeded)


def line(made: Record) -> bytes:
    """A record as one JSON line."""
    return made.model_dump_json(exclude_none=True).encode() + b"\n"
