"""Make the jobs and tickets of the simulation: real ones, around one blank image."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from models.domain.deadline import NEVER, Deadline
from models.domain.image import Jpeg, Subsampling
from models.domain.job import Job, Lane, Outcome
from workers.operations import Classify
from workers.scheduling.ticket import Ticket

OPERATION = Classify()
IMAGE = Jpeg(np.zeros(1, np.uint8), 375, 500, 1, Subsampling.S420)
"""The photos of the measurements have about this size; no code that runs here reads its bytes."""


def _no_mailbox(_outcomes: Sequence[tuple[Ticket, Outcome]]) -> None:
    """Ignore outcomes: the simulation hands them out itself."""


def ticket(tag: Any, deadline: Deadline = NEVER, lane: Lane = Lane.INTERACTIVE) -> Ticket:
    """Return the ticket of an image to be labelled; `tag` is the simulation's own."""
    return Ticket(Job(OPERATION, IMAGE, deadline, lane), _no_mailbox, tag)
