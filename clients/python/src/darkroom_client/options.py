"""Options of methods, with the names and meanings of the HTTP interface."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Required, TypedDict

from darkroom_client.images import Content

Operation = str | Mapping[str, Any]
"""One filter: its name, or its name with parameters as in `{"name": "sepia", "amount": 0.5}`."""

Operations = Operation | Sequence[Operation]
"""One filter, or a chain of them that is applied in order."""

Versions = Sequence[Mapping[str, Any]]
"""Versions as in `POST /process`: `{"id": "grey", "name": "grayscale", "format": "webp"}`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call is: images that are done, how many of them failed, and all if known."""

    done: int
    failed: int
    total: int | None


class CallOptions(TypedDict, total=False):
    """Options of every call.

    `deadline` is the time in seconds that each request may take with all its tries; the server gets
    it as `X-Deadline-Ms`. `request_id` names the requests in the logs of the server; the second
    request of a call gets `-2` behind it, and so on.
    """

    deadline: float | None
    request_id: str | None


class ImageOptions(CallOptions, total=False):
    """Options of calls with images: `progress` is called after each, in the caller's thread."""

    progress: Callable[[Progress], None] | None


class ScoreFields(TypedDict, total=False):
    """How many labels there are, and how they are made, as in `POST /classify`."""

    top_k: int | None
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None
    model: str | None


class LabelFields(ScoreFields, total=False):
    """What a network gives, as in `POST /classify`."""

    output: Literal["labels", "logits", "embedding"] | None


class EncodingFields(TypedDict, total=False):
    """How filtered images are encoded, as in `POST /filter`."""

    format: str | None
    quality: int | None
    progressive: bool | None
    chroma: Literal["420", "422", "444"] | None
    lossless: bool | None
    png_level: int | None
    avif_speed: int | None
    metadata: Literal["strip", "keep"] | None
    max_bytes: int | None
    min_quality: int | None
    frames: Literal["first", "all"] | None


class ClassifyOptions(LabelFields, ImageOptions, total=False):
    """Options of `classify`; what is not given is the server's default."""


class EncodingOptions(EncodingFields, ImageOptions, total=False):
    """Options of encoded images; `out` is a folder for the results.

    With `out` every image is written there under its index and name, whole or not at all, and the
    result has its `path` instead of its `data`.
    """

    out: str | Path | None


class FilterOptions(EncodingOptions, total=False):
    """Options of `filter`: the name of a `preset` of the server in place of `ops`, and a picture.

    `overlay` is the picture of the filter `overlay`: a path, bytes or a binary file.
    """

    preset: str | None
    overlay: Content | None


class ProcessOptions(ClassifyOptions, EncodingOptions, total=False):
    """Options of `process`: those of both; `labels=False` leaves out the labels."""

    labels: bool


class InfoOptions(ImageOptions, total=False):
    """Options of `info`; `colour=False` leaves out the dominant colour and decodes no pixel.

    `appearance=True` adds hashes and dominant colours in place of the one colour.
    """

    colour: bool
    appearance: bool


class MatchOptions(ImageOptions, total=False):
    """Options of `match`: the `template` that is looked for, a path, bytes or a binary file.

    There are at most `k` places, with scores of at least `threshold`.
    """

    template: Required[Content]
    k: int
    threshold: float


class JobOptions(LabelFields, EncodingFields, CallOptions, total=False):
    """Options of a job: those of its operation, with `ops` or `preset`, or `versions`.

    `destination` is the address of a folder or bucket where the server writes images and results,
    and `webhook` a URL that it calls when the job has ended. At most `concurrency` images of the
    job are in work at a time; without it the server chooses. The job ends early once more than
    `max_failures` of its images have failed.

    A request with the same `idempotency_key`, images and options makes no second job; if it is not
    given, one is made, which protects from a connection that breaks.
    """

    labels: bool
    ops: Operations
    preset: str | None
    versions: Versions
    destination: str | None
    webhook: str | None
    concurrency: int | None
    max_failures: int | None
    idempotency_key: str | None
