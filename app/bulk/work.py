"""What a command wants of every image: the request for a server, and the record of its answer."""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

import msgspec

from app.bulk.errors import WrongUsage
from app.bulk.outputs.folder import ResultsFolder
from app.bulk.report import OF_HTTP, readable, with_file
from app.bulk.sources.source import Source
from app.intake.wanted import FixedFormat, Version
from models.codec import Encoding, ImageFormat
from models.domain.errors import ServiceError

Record = dict[str, Any]
"""A record of a server."""

HTTP_ALONE = {"index", "id", "source"}
"""Members of a server's record that the command knows better."""


@dataclass(frozen=True, slots=True)
class Task:
    """One image to answer; `index` is its position among all images of the command.

    `target` is the file for its result, below the folder of results.
    """

    index: int
    source: Source
    target: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer of one image: its record as a line of JSON, and whether it is an error."""

    line: bytes
    failed: bool


class Work(Protocol):
    """What a server does with every image; several threads call `finished`.

    With `timing` a record has the milliseconds of its stages, which differ from run to run.
    """

    path: ClassVar[str]
    """The path of the endpoint."""
    needs_weights: ClassVar[bool]

    @property
    def timing(self) -> bool:
        """Return whether records have the milliseconds of their stages."""

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options as fields of a form."""

    def identity(self, models: Mapping[str, Any], /) -> Mapping[str, object] | None:
        """Return what records depend on, of the answer to `GET /models`; may raise WrongUsage."""

    def finished(self, task: Task, record: Record) -> Finished:
        """Return the record of an image, after its result was written; may raise CannotWrite."""


@dataclass(frozen=True, slots=True)
class Classification:
    """Labels, logits or embeddings of every image; `given` are options of `POST /classify`."""

    given: Mapping[str, Any]
    timing: bool = False
    path: ClassVar[str] = "/classify"
    needs_weights: ClassVar[bool] = True

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options as fields of a form."""
        return {name: str(value) for name, value in self.given.items()}

    def identity(self, models: Mapping[str, Any]) -> Mapping[str, object] | None:
        """Return the properties of the server's first network that its records depend on.

        The options do not say them all: `--weights auto` takes the weights that can be had, and the
        content of a file of labels may change. A warning is among them if the labels are not those
        one would expect.
        """
        if not models.get("models"):
            raise WrongUsage(str(models.get("problem") or "the server has no network"))
        first = models["models"][0]
        classes = first["classes"]
        names = [[each["label"] for each in classes], [each.get("wnid") for each in classes]]
        return {
            "network": first["name"],
            "weights": first["sha256"],
            "labels": hashlib.sha256(json.dumps(names).encode()).hexdigest(),
            "preprocessing": first["preprocessing"],
            "precision": first["precision"],
            **({"warning": first["warning"]} if first.get("warning") else {}),
        }

    def finished(self, task: Task, record: Record) -> Finished:
        """Return the record of an image."""
        return _finished(task, record, timing=self.timing)


class Destination(Protocol):
    """Where results are written."""

    def write(self, task: Task, format_: ImageFormat, data: bytes) -> str | None:
        """Write one result and return its file, None if it has no name.

        Raises ServiceError if only this result cannot be written, CannotWrite if none can be.
        """

    def planned(self, task: Task) -> str | None:
        """Return the file that the result of an image would have had."""


@dataclass(frozen=True, slots=True)
class InFolder:
    """Destination of many images: the folder of results, which mirrors the folders of sources."""

    folder: ResultsFolder

    def write(self, task: Task, format_: ImageFormat, data: bytes) -> str | None:
        """Write one result and return its file."""
        return str(self.folder.write(task.target, format_, data))

    def planned(self, task: Task) -> str | None:
        """Return the file that the result of an image would have had."""
        return str(self.folder.path / task.target)


@dataclass(frozen=True, slots=True)
class Filtering:
    """A filtered `version` of every image by `POST /filter`, written to a `destination`."""

    version: Version
    destination: Destination
    timing: bool = False
    path: ClassVar[str] = "/filter"
    needs_weights: ClassVar[bool] = False

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options as fields of a form."""
        filters = self.version.operation.filters
        ops = json.dumps([each.model_dump(mode="json") for each in filters])
        output, plain = self.version.output, Encoding()
        given = {each.name: getattr(output.encoding, each.name) for each in fields(Encoding)}
        texts = {
            name: str(value).lower()
            for name, value in given.items()
            if value != getattr(plain, name)
        }
        if isinstance(output.format, FixedFormat):
            texts["format"] = output.format.format.value
        return {**texts, "ops": ops}

    def identity(self, _models: Mapping[str, Any]) -> Mapping[str, object] | None:
        """Return None: no network is asked."""
        return None

    def finished(self, task: Task, record: Record) -> Finished:
        """Write the result of an image and return its record."""
        file, image = None, record.get("image")
        if image is not None:
            data = base64.b64decode(image.pop("data"))
            format_ = ImageFormat(image["media_type"].removeprefix("image/"))
            try:
                file = self.destination.write(task, format_, data)
            except ServiceError as error:
                record = failure(error)
        if record["status"] != "ok":
            file = self.destination.planned(task)
        return _finished(task, record, file, timing=self.timing)


def failure(error: ServiceError) -> Record:
    """Return the record of an image that no server saw, or whose result cannot be written."""
    return {"status": "error", "error": {"code": error.code, "detail": readable(error.detail)}}


def _finished(task: Task, record: Record, file: str | None = None, *, timing: bool) -> Finished:
    """Return the line for a record of a server, with the command's own index and name."""
    own = HTTP_ALONE if timing else HTTP_ALONE | {"timing"}
    made: Record = {"index": task.index, "source": readable(task.source.name)}
    made |= {name: value for name, value in record.items() if name not in own}
    if error := made.get("error"):
        made["error"] = {name: value for name, value in error.items() if name not in OF_HTTP}
    return Finished(with_file(msgspec.json.encode(made) + b"\n", file), "error" in made)
