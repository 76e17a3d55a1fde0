"""Hand the answers of a replica to the jobs that wait for them."""

import logging
import time

from models.domain.errors import Draining, InternalError, WorkerLost
from models.domain.image import Pixels
from models.domain.job import Failed, Outcome
from workers.cluster.messages import Answer, Reply, arrays_of, decode_answer
from workers.cluster.outgoing import Group, Lost, Pending

log = logging.getLogger("darkroom.cluster")


def resolve(pending: Pending, outcome: Outcome | Lost) -> None:
    """Give a job its outcome, unless it has one."""
    if not pending.waiter.done():
        pending.waiter.set_result(outcome)


def receive(group: Group, reply: Reply, found: list[Pixels]) -> None:
    """Hand out the answers of a message, and take their jobs out of the group."""
    now = time.monotonic()
    arrays = arrays_of(reply.answers, found)
    for answer, array in zip(reply.answers, arrays, strict=True):
        pending = group.jobs.pop(answer.done.number)
        if not pending.waiter.done():
            resolve(pending, _outcome(answer, array, now))


def _outcome(answer: Answer, array: Pixels | None, now: float) -> Outcome | Lost:
    if answer.dropped:  # another caller's message: this job is still wanted
        return Lost(died=False)
    try:
        outcome = decode_answer(answer, array, now)
    except Exception:  # this job is answered, and the others of its message are protected
        log.exception("an answer of a replica could not be read")
        text = "the answer of a worker could not be read; it has been logged"
        return Failed(InternalError(text))
    if isinstance(outcome, Failed) and isinstance(outcome.error, Draining | WorkerLost):
        return Lost(isinstance(outcome.error, WorkerLost))
    return outcome
