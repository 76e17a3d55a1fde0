"""The wish of a command for every image: the request for a server, and the record of its answer."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import msgspec

from app.bulk.report import json_line, readable
from app.bulk.walk import Task
from app.intake.wanted import Version
from darkroom_client import ImageResult, Network, Problem, requests
from darkroom_client.requests import ImageCall
from models.codec import Encoding, ImageFormat
from models.domain.errors import ServiceError

Identity = Mapping[str, object]
"""The properties of a network that records depend on."""


class Finished(NamedTuple):
    """The answer of an image: its record as a line of JSON, and whether it is an error."""

    line: bytes
    failed: bool


@dataclass(frozen=True, slots=True)
class Classification:
    """Labels, logits or embeddings of every image; `given` are options of `POST /classify`.

    With `timing` records have the milliseconds of their stages, which differ each time.
    """

    given: Mapping[str, Any]
    timing: bool = False
    needs_weights: ClassVar[bool] = True

    def call(self) -> ImageCall:
        """Return the request of the Python client for any images."""
        asked: Any = {name: each for name, each in self.given.items() if name != "vector_format"}
        return requests.classify(asked)

    def finished(self, task: Task, result: ImageResult, warning: str = "") -> Finished:
        """Return the record of an image; a vector is numbers unless base64 is asked for."""
        if self.given.get("vector_format") != "base64":
            for name in ("logits", "embedding"):
                if getattr(result, name) is not None:
                    numbers = {name: result.vector.tolist()}
                    result = msgspec.structs.replace(result, **numbers)
        more = {"warning": warning} if warning and result.ok else {}
        return _finished(task, result, timing=self.timing, **more)


@dataclass(frozen=True, slots=True)
class Filtering:
    """A filtered `version` of every image by `POST /filter`.

    `write` writes a result to the target of its task and returns the file, None if it has no name.
    The function raises ServiceError if only this result cannot be written, CannotWrite if none can
    be. With `timing` records have the milliseconds of their stages, and failures no file.
    """

    version: Version
    write: Callable[[str, ImageFormat, bytes], str | None]
    timing: bool = False
    needs_weights: ClassVar[bool] = False

    def call(self) -> ImageCall:
        """Return the request of the Python client for any images."""
        filters = self.version.operation.filters
        ops = [each.model_dump(mode="json", exclude_unset=True) for each in filters]
        version, plain = self.version, Encoding()
        given: Any = {each.name: getattr(version.encoding, each.name) for each in fields(Encoding)}
        given = {name: each for name, each in given.items() if each != getattr(plain, name)}
        if version.format.format is not None:
            given["format"] = version.format.format.value
        return requests.filtered(ops, given)

    def finished(self, task: Task, result: ImageResult, _warning: str = "") -> Finished:
        """Write the result of an image and return its record; may raise CannotWrite."""
        file, image = None, result.image
        if image is not None:
            format_ = ImageFormat(image.media_type.removeprefix("image/"))
            try:
                file = self.write(task.target, format_, result.content)
                image = msgspec.structs.replace(image, data=None)
                result = msgspec.structs.replace(result, image=image)
            except ServiceError as error:
                result = failure(error)
        if not result.ok:
            file = None if self.timing else task.target
        more = {} if file is None else {"file": readable(file)}
        return _finished(task, result, timing=self.timing, **more)


@dataclass(frozen=True, slots=True)
class Hashing:
    """The description of every image with its perceptual hash, by `POST /info`."""

    timing: ClassVar[bool] = False
    needs_weights: ClassVar[bool] = False

    def call(self) -> ImageCall:
        """Return the request of the Python client for any images."""
        return requests.info({"appearance": True})

    def finished(self, task: Task, result: ImageResult, _warning: str = "") -> Finished:
        """Return the record of an image."""
        return _finished(task, result, timing=self.timing)


Work = Classification | Filtering | Hashing
"""The request for every image; several threads and processes call `finished`."""


def identity(network: Network) -> Identity:
    """Return the properties of a network that records depend on.

    The options do not say them all: `--weights auto` takes the weights that can be had, and the
    content of a file of labels may change. A warning is among them if the labels are not the
    expected labels.
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


def failure(error: ServiceError) -> ImageResult:
    """Return the record of an image that no server saw, or whose result cannot be written."""
    problem = Problem(error.code, readable(error.detail))
    return ImageResult(index=0, status="error", error=problem)


def _finished(task: Task, result: ImageResult, *, timing: bool, **more: str) -> Finished:
    """Return the line for a record of a server, with the command's own index and name.

    An error keeps its code, its words and its wrong parameters, and no members of HTTP.
    """
    error = result.error
    if error is not None:
        error = Problem(error.code, error.detail, errors=error.errors)
    made = msgspec.structs.replace(
        result,
        index=task.number,
        source=readable(task.source.name),
        id=None,
        error=error,
        timing=result.timing if timing else None,
    )
    return Finished(json_line(made, **more), error is not None)
