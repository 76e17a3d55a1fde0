"""What the server answers, as typed values. Members that this version does not know are ignored."""

import sys
from array import array
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from darkroom_client.errors import ImageError, Problem


class Prediction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One class of one image: `score` is between 0 and 1 unless the logits were asked for."""

    label: str
    wnid: str | None = None
    class_id: int
    score: float


class FilteredImage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filtered image: its `size` in bytes, and `data`, the file, or `path` if it was written.

    `name` is its name below the `output` of a job. `quality` was chosen for `max_bytes`.
    """

    media_type: str
    width: int
    height: int
    size: int = msgspec.field(name="bytes")
    data: bytes | None = None
    path: Path | None = None
    name: str | None = None
    quality: int | None = None


class ColourShare(msgspec.Struct, frozen=True):
    """A dominant colour as `#rrggbb`, and its share of the opaque pixels."""

    colour: str
    share: float


class ImageInfo(msgspec.Struct, frozen=True):
    """Description of a file by its header; sizes in pixels are those of the upright image.

    `phash`, `blurhash` and `colours` are there with `appearance=True`, in place of `colour`.
    """

    format: str
    width: int
    height: int
    orientation: int
    mode: str
    exif: dict[str, str | int | float]
    frames: int | None = None
    profile: str | None = None
    colour: str | None = None
    phash: str | None = None
    blurhash: str | None = None
    colours: list[ColourShare] | None = None


class Match(msgspec.Struct, frozen=True):
    """A place of a template in an image, in pixels from the top left corner, and its score."""

    x: int
    y: int
    width: int
    height: int
    score: float


class Version(msgspec.Struct, frozen=True):
    """One filtered version of one image of `process`."""

    index: int
    status: Literal["ok", "error"]
    id: str | None = None
    image: FilteredImage | None = None
    error: Problem | None = None
    timing: dict[str, float] | None = None

    @property
    def content(self) -> bytes:
        """Return the encoded image; raises ImageError if the version failed."""
        return _content(self.image, self.error, self.id or f"version {self.index}")


class ImageResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one image: what was asked for, or its `error`.

    `index` counts the images of the call from 0. `source` is the path, the URL or the name that
    the caller gave. `timing` has milliseconds by stage.
    """

    index: int
    id: str | None = None
    source: str | None = None
    status: Literal["ok", "partial", "error"]
    predictions: list[Prediction] | None = None
    logits: bytes | list[float] | None = None
    embedding: bytes | list[float] | None = None
    image: FilteredImage | None = None
    info: ImageInfo | None = None
    matches: list[Match] | None = None
    versions: list[Version] | None = None
    error: Problem | None = None
    timing: dict[str, float] | None = None

    @property
    def ok(self) -> bool:
        """Return whether everything that was asked for is there."""
        return self.status == "ok"

    def checked(self) -> "ImageResult":
        """Return this result; raises ImageError if the image, or a version of it, failed."""
        errors = [self.error, *(each.error for each in self.versions or ())]
        for error in errors:
            if error is not None:
                raise ImageError(error, self.source)
        return self

    @property
    def content(self) -> bytes:
        """Return the filtered image as a file; raises ImageError if the image failed."""
        return _content(self.image, self.error, self.source)

    @property
    def vector(self) -> "array[float]":
        """Return the logits or the embedding as float32; raises ImageError if the image failed."""
        found = self.embedding if self.embedding is not None else self.logits
        if found is None:
            self.checked()
            raise ValueError("ask for output='logits' or output='embedding' to get a vector")
        if isinstance(found, list):
            return array("f", found)
        values = array("f", found)
        if sys.byteorder == "big":
            values.byteswap()
        return values


def _content(image: FilteredImage | None, error: Problem | None, source: str | None) -> bytes:
    if error is not None:
        raise ImageError(error, source)
    if image is None:
        raise ValueError("no filtered image was asked for; labels are in `predictions`")
    if image.data is None:
        raise ValueError(f"the image was written to {image.path or image.name}")
    return image.data


class Filter(msgspec.Struct, frozen=True):
    """One filter of the catalogue; `parameters` are JSON Schemas by name."""

    name: str
    description: str
    parameters: dict[str, dict[str, Any]]
    alpha: str
    border: str | None
    result_shape: str
    tolerance: str
    example: dict[str, Any]
    spec_version: int
    thumbnail: str


class Filters(msgspec.Struct, frozen=True):
    """The catalogue of filters."""

    spec_version: int
    filters: list[Filter]


class ImageClass(msgspec.Struct, frozen=True):
    """One class of a network."""

    class_id: int
    label: str
    wnid: str | None = None


class Network(msgspec.Struct, frozen=True):
    """A served network with its weights and its classes; `features` is an embedding's length."""

    name: str
    sha256: str
    label_set: str
    n_classes: int
    random: bool
    preprocessing: int
    precision: str
    device: str
    features: int
    classes: list[ImageClass]
    network: str | None = None
    warning: str | None = None


class Networks(msgspec.Struct, frozen=True):
    """The served networks, the default one first; `problem` tells why one has no weights."""

    models: list[Network]
    problem: str | None = None


class Health(msgspec.Struct, frozen=True):
    """State of the server: `status` is "ok", "degraded" or "not ready"; `details` has the rest."""

    ready: bool
    status: str
    details: dict[str, Any]


FINISHED = ("succeeded", "failed", "cancelled", "expired")
"""States of jobs that have finished."""


class JobItems(msgspec.Struct, frozen=True):
    """The images of a job by their state; images with an error are `done` and `failed`."""

    total: int
    done: int
    succeeded: int
    failed: int


class JobEnding(msgspec.Struct, frozen=True):
    """What goes somewhere at the end of a job; `state` is "waiting", "done" or "failed"."""

    target: str
    state: str
    attempts: int
    reason: str | None = None


class Job(msgspec.Struct, frozen=True):
    """A job; `rate` is in images a second, and `problem` tells why it failed or why it waits."""

    id: str
    state: str
    operation: str
    items: JobItems
    created: datetime
    options: dict[str, Any] = {}
    started: datetime | None = None
    finished: datetime | None = None
    expires: datetime | None = None
    concurrency: int | None = None
    max_failures: int | None = None
    rate: float | None = None
    estimated_end: datetime | None = None
    destination: JobEnding | None = None
    webhook: JobEnding | None = None
    problem: Problem | None = None

    @property
    def is_finished(self) -> bool:
        """Return whether the state is final."""
        return self.state in FINISHED

    def done_at(self, offset: int) -> bool:
        """Return whether there are no results from this offset on, now and later."""
        return self.is_finished and offset >= self.items.done


class JobPage(msgspec.Struct, frozen=True):
    """Some jobs, the newest first; `next` is None on the last page."""

    jobs: list[Job]
    next: str | None = None
