"""What a command wants of every image: the request for a server, and the record of its answer."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

import msgspec

from app.bulk.report import json_line, readable
from app.bulk.sources.source import Source
from app.intake.wanted import Version
from darkroom_client import Client, Image, ImageResult, Network, Problem
from models.codec import Encoding, ImageFormat
from models.domain.errors import ServiceError

Identity = Mapping[str, object]
"""The properties of a network that records depend on."""


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
    """The request for every image; several threads call `ask` and `finished`."""

    needs_weights: ClassVar[bool]

    @property
    def timing(self) -> bool:
        """Return whether records have the milliseconds of their stages, which differ each time."""

    def ask(self, client: Client, images: Sequence[Image], /) -> list[ImageResult]:
        """Return the answers of a server, in the order of the images; raises DarkroomError."""

    def finished(self, task: Task, result: ImageResult) -> Finished:
        """Return the record of an image, after its result was written; may raise CannotWrite."""


@dataclass(frozen=True, slots=True)
class Classification:
    """Labels, logits or embeddings of every image; `given` are options of `POST /classify`."""

    given: Mapping[str, Any]
    timing: bool = False
    needs_weights: ClassVar[bool] = True

    def ask(self, client: Client, images: Sequence[Image]) -> list[ImageResult]:
        """Return the answers of a server, in the order of the images."""
        asked: Any = {name: each for name, each in self.given.items() if name != "vector_format"}
        return client.classify(images, **asked)

    def finished(self, task: Task, result: ImageResult) -> Finished:
        """Return the record of an image; a vector is numbers unless base64 is asked for."""
        if self.given.get("vector_format") != "base64":
            for name in ("logits", "embedding"):
                if getattr(result, name) is not None:
                    numbers = {name: result.vector.tolist()}
                    result = msgspec.structs.replace(result, **numbers)
        return _finished(task, result, None, timing=self.timing)


def identity(network: Network) -> Identity:
    """Return the properties of a network that records depend on.

    The options do not say them all: `--weights auto` takes the weights that can be had, and the
    content of a file of labels may change. A warning is among them if the labels are not those
    one would expect.
    """
    names = [[each.label for each in network.classes], [each.wnid for each in network.classes]]
    return {
        "network": network.name,
        "weights": network.sha256,
        "labels": hashlib.sha256(json.dumps(names).encode()).hexdigest(),
        "preprocessing": network.preprocessing,
        "precision": network.precision,
        **({"warning": network.warning} if network.warning else {}),
    }


class Destination(Protocol):
    """The place of filtered images."""

    def write(self, task: Task, format_: ImageFormat, data: bytes) -> str | None:
        """Write one result and return its file, None if it has no name.

        Raises ServiceError if only this result cannot be written, CannotWrite if none can be.
        """

    def planned(self, task: Task) -> str | None:
        """Return the file that the result of an image would have had."""


@dataclass(frozen=True, slots=True)
class Filtering:
    """A filtered `version` of every image by `POST /filter`, written to a `destination`."""

    version: Version
    destination: Destination
    timing: bool = False
    needs_weights: ClassVar[bool] = False

    def ask(self, client: Client, images: Sequence[Image]) -> list[ImageResult]:
        """Return the answers of a server, in the order of the images."""
        ops = [each.model_dump(mode="json") for each in self.version.operation.filters]
        output, plain = self.version.output, Encoding()
        given: Any = {each.name: getattr(output.encoding, each.name) for each in fields(Encoding)}
        given = {name: each for name, each in given.items() if each != getattr(plain, name)}
        if output.format.format is not None:
            given["format"] = output.format.format.value
        return client.filter(images, ops, **given)

    def finished(self, task: Task, result: ImageResult) -> Finished:
        """Write the result of an image and return its record."""
        file, image = None, result.image
        if image is not None:
            format_ = ImageFormat(image.media_type.removeprefix("image/"))
            try:
                file = self.destination.write(task, format_, result.content)
                image = msgspec.structs.replace(image, data=None)
                result = msgspec.structs.replace(result, image=image)
            except ServiceError as error:
                result = failure(error)
        if not result.ok:
            file = self.destination.planned(task)
        return _finished(task, result, file, timing=self.timing)


def failure(error: ServiceError) -> ImageResult:
    """Return the record of an image that no server saw, or whose result cannot be written."""
    problem = Problem(error.code, readable(error.detail))
    return ImageResult(index=0, status="error", error=problem)


def _finished(task: Task, result: ImageResult, file: str | None, *, timing: bool) -> Finished:
    """Return the line for a record of a server, with the command's own index and name.

    An error keeps its code, its words and its wrong parameters, and no members of HTTP.
    """
    error = result.error
    if error is not None:
        error = Problem(error.code, error.detail, errors=error.errors)
    made = msgspec.structs.replace(
        result,
        index=task.index,
        source=readable(task.source.name),
        id=None,
        error=error,
        timing=result.timing if timing else None,
    )
    line = json_line(made) if file is None else json_line(made, file=readable(file))
    return Finished(line, error is not None)
