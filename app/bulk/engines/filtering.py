"""Filter every image of a command and write the result."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from app.bulk.engines.engine import Finished, Task
from app.bulk.outputs.folder import ResultsFolder
from app.bulk.report import json_line, with_file
from app.intake.wanted import Version, Wanted
from app.pipeline.results.outcomes import Answer, EncodedImage
from app.responses.records import record
from app.service import Service
from models.codec import ImageFormat
from models.domain.errors import ServiceError


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
        return str(self.folder.write(task.target, format_, data, again=task.replaces))

    def planned(self, task: Task) -> str | None:
        """Return the file that the result of an image would have had."""
        return str(self.folder.path / task.target)


@dataclass(frozen=True, slots=True)
class Filtering:
    """A filtered `version` of every image, at a `destination`.

    With `timing` a record has the milliseconds of its stages, which differ from run to run.
    """

    version: Version
    destination: Destination
    timing: bool = False
    needs_weights: bool = field(default=False, init=False)

    def wanted(self) -> Wanted:
        """Return what is wanted of every image."""
        return self.version

    async def finished(self, _service: Service, answer: Answer, task: Task) -> Finished:
        """Write the result of an answer, and return its record."""
        file = None
        outcome = answer.outcome
        if isinstance(outcome, EncodedImage):
            data = await outcome.file.read_all()
            write = self.destination.write
            try:
                file = await asyncio.to_thread(write, task, outcome.format, data)
            except ServiceError as error:
                answer = Answer(answer.item, error, answer.stages)
        if isinstance(answer.outcome, ServiceError):
            file = self.destination.planned(task)
        made = record(answer)
        if not self.timing:
            made = made.model_copy(update={"timing": None})
        return Finished(with_file(json_line(made), file), made.error is not None)

    def identity(self, _service: Service) -> Mapping[str, object] | None:
        """Return None: no network is loaded."""
        return None
