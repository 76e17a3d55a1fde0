"""What a server is asked for, and what becomes of its records."""

import asyncio
import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import msgspec

from app.bulk.engines.engine import Finished, Task
from app.bulk.engines.filtering import Destination, Filtering
from app.bulk.engines.reading import Read
from app.bulk.engines.work import Classification
from app.bulk.errors import WrongUsage
from app.bulk.report import OF_HTTP, readable, with_file
from app.intake.item import Url
from app.intake.spool import Blob
from app.intake.wanted import FixedFormat
from models.codec import Encoding, ImageFormat
from models.domain.errors import ServiceError

Part = tuple[str, tuple[str | None, bytes]]
"""The name, the file name and the content of a part of a form."""


class RemoteWork(Protocol):
    """What a server does with every image."""

    @property
    def path(self) -> str:
        """Return the path of the endpoint."""

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options as fields of a form."""

    def identity(self, models: Mapping[str, Any], /) -> Mapping[str, object] | None:
        """Return what records depend on, of the answer to `GET /models`; may raise WrongUsage."""

    async def finished(self, task: Task, record: dict[str, Any]) -> Finished:
        """Return the record of an image, after its result was written."""


def form_of(reads: Sequence[Read], options: Mapping[str, str]) -> list[Part]:
    """Return the parts of a form: the options, then the images in their order.

    File names are numbers: a name such as `a.zip` has a meaning for a server.
    """
    parts: list[Part] = [(name, (None, value.encode())) for name, value in options.items()]
    for number, read in enumerate(reads):
        content = read.item.content
        if isinstance(content, Url):
            parts.append(("urls", (None, content.url.encode("utf-8", "surrogateescape"))))
        elif isinstance(content, Blob):
            parts.append(("files", (str(number), content.read())))
    return parts


@dataclass(frozen=True, slots=True)
class RemoteClassification:
    """Labels, logits or embeddings by `POST /classify`."""

    work: Classification
    path: str = "/classify"

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options as fields of a form."""
        return {name: str(value) for name, value in self.work.options.items()}

    def identity(self, models: Mapping[str, Any]) -> Mapping[str, object] | None:
        """Return the properties of the server's first network, as `identity_of` does."""
        if not models.get("models"):
            raise WrongUsage(f"--server: {models.get('problem') or 'it has no network'}")
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

    async def finished(self, task: Task, record: dict[str, Any]) -> Finished:
        """Return the record of an image."""
        return _finished(task, record, timing=self.work.timing)


@dataclass(frozen=True, slots=True)
class RemoteFiltering:
    """Filtered images by `POST /filter`, written here; `encoding` has the options for it."""

    work: Filtering
    encoding: Mapping[str, Any]
    path: str = "/filter"

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options as fields of a form."""
        filters = self.work.version.operation.filters
        ops = json.dumps([each.model_dump(mode="json") for each in filters])
        texts = {name: str(value).lower() for name, value in self.encoding.items()}
        return {**texts, "ops": ops}

    def identity(self, _models: Mapping[str, Any]) -> Mapping[str, object] | None:
        """Return None: no network is asked."""
        return None

    async def finished(self, task: Task, record: dict[str, Any]) -> Finished:
        """Write the result of an image and return its record."""
        destination: Destination = self.work.destination
        file, image = None, record.get("image")
        if image is not None:
            data = base64.b64decode(image.pop("data"))
            format_ = ImageFormat(image["media_type"].removeprefix("image/"))
            try:
                file = await asyncio.to_thread(destination.write, task, format_, data)
            except ServiceError as error:
                record = {"status": "error", "error": {"code": error.code, "detail": error.detail}}
        if record["status"] != "ok":
            file = destination.planned(task)
        return _finished(task, record, file, timing=self.work.timing)


def _finished(
    task: Task, record: dict[str, Any], file: str | None = None, *, timing: bool
) -> Finished:
    """Return the record of a server as the engine in this process would have made it."""
    own = {"index", "id", "source", "timing"} if not timing else {"index", "id", "source"}
    made: dict[str, Any] = {"index": task.index, "source": readable(task.source.name)}
    made |= {name: value for name, value in record.items() if name not in own}
    if error := made.get("error"):
        made["error"] = {name: value for name, value in error.items() if name not in OF_HTTP}
    return Finished(with_file(msgspec.json.encode(made) + b"\n", file), "error" in made)


def remote(work: Classification | Filtering) -> RemoteWork:
    """Return what a server is asked for, so that it does the same work."""
    if isinstance(work, Classification):
        return RemoteClassification(work)
    output = work.version.output
    plain = Encoding()
    given = {each.name: getattr(output.encoding, each.name) for each in fields(Encoding)}
    options = {name: value for name, value in given.items() if value != getattr(plain, name)}
    if isinstance(output.format, FixedFormat):
        options["format"] = output.format.format.value
    return RemoteFiltering(work, options)
