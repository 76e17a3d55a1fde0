"""Turn the answers of actors into records of the command; filtered images are written here."""

import asyncio

from app.bulk.engines.cluster.messages import Answered
from app.bulk.engines.engine import Finished, Task
from app.bulk.engines.filtering import Filtering
from app.bulk.engines.in_process import Work
from app.bulk.report import json_line, with_file
from app.intake.item import Item
from app.pipeline.results.outcomes import Answer
from app.pipeline.results.timings import Timings
from app.responses.records import record
from models.codec import ImageFormat
from models.domain.errors import ServiceError


async def received(work: Work, task: Task, answered: Answered) -> Finished:
    """Return the record that an engine of this process would have made, after writing the image.

    Raises CannotWrite if no result can be written.
    """
    if not isinstance(work, Filtering):
        return Finished(answered.line, answered.failed)
    planned = work.destination.planned(task)
    if answered.format is None or answered.data is None:
        return Finished(with_file(answered.line, planned), answered.failed)
    format_ = ImageFormat(answered.format)
    try:
        file = await asyncio.to_thread(work.destination.write, task, format_, answered.data)
    except ServiceError as error:
        failed = Answer(Item(task.index, error, task.source.name), error, Timings())
        made = record(failed).model_copy(update={"timing": None})
        return Finished(with_file(json_line(made), planned), True)
    return Finished(with_file(answered.line, file), answered.failed)
