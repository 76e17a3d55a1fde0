"""The values that every form of a response needs beside the answers."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import Request

from app.intake.wanted import Parts, Version, Wanted
from app.pipeline.results.outcomes import Answer
from app.pipeline.results.timings import Timings
from app.responses import records
from app.responses.inline_images import InlineImages
from app.responses.vectors import NO_VECTORS, VectorStyle
from models.api.schemas import ModelRecord, Record
from models.labels import LabelSet
from workers.filters.base import SPEC_VERSION

Answers = AsyncGenerator[Answer, None]
"""The answers of a request, each as it finishes; closing it ends the work."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """The values with which the answers of one request are rendered.

    `request` gives problems their path and id. `model` makes the labels, whose names are `labels`;
    both are None where no labels are wanted. `intake` is the time that reading the request took.
    `vectors` says how logits and embeddings are written. `good_headers` are the headers that only
    whole answers without an error have, such as those about caching. `names` are the names of the
    images in archives, without suffix.
    """

    request: Request
    headers: dict[str, str]
    intake: Timings
    model: ModelRecord | None = None
    labels: LabelSet | None = None
    vectors: VectorStyle = NO_VECTORS
    good_headers: Mapping[str, str] = field(default_factory=dict)
    names: Sequence[str] = ()

    def record(
        self, answer: Answer, *, name: str | None = None, inline: InlineImages | None = None
    ) -> Record:
        """Return an answer as a record; its images are files `name`, or added to `inline`."""
        return records.record(
            answer, self.labels, self.request, name=name, inline=inline, vectors=self.vectors
        )


def headers_of(wanted: Wanted, model: ModelRecord | None) -> dict[str, str]:
    """Return the headers that every form of an answer has.

    Filtered images depend on the definition of the filters and on Accept; labels, on the weights.
    """
    headers = {}
    if isinstance(wanted, Version | Parts):
        headers = {"X-Filter-Spec": str(SPEC_VERSION), "Vary": "Accept"}
    if model is not None:
        network = f"; network={model.network}" if model.network else ""
        labels = f"labels={model.label_set}{network}"
        headers["X-Model"] = f"{model.name}; sha256={model.sha256}; {labels}"
    return headers
