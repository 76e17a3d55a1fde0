"""The work of a job on each image, by the options that the endpoint of its operation has."""

from collections.abc import Callable, Mapping
from typing import Any

from app.http.negotiation import EVERYTHING
from app.intake.wanted import ImageRequest, Wanted
from app.jobs.running.work import Work, WorkOf
from app.responses.vectors import VectorStyle
from app.routes.classify import classify_wanted
from app.routes.filter import filter_wanted
from app.routes.process import process_wanted
from app.service import Computing
from models.domain.errors import FieldError, InvalidParameter

OPERATIONS = ("classify", "filter", "process")


def work_of(computing: Callable[[], Computing]) -> WorkOf:
    """Return the function that maps operations and options to work, with the networks of now."""

    def work(operation: str, given: Mapping[str, Any]) -> Work:
        wanted = _wanted(operation, given, computing())
        network = ImageRequest((), wanted).network
        model = None if network is None else computing().chosen(network).model
        labels = None if model is None else model.labels
        return Work(wanted, labels, VectorStyle.of(given))

    return work


def _wanted(operation: str, given: Mapping[str, Any], computing: Computing) -> Wanted:
    if operation == "classify":
        return classify_wanted(given, computing)
    if operation == "filter":
        return filter_wanted(given, EVERYTHING)
    if operation == "process":
        return process_wanted(given, EVERYTHING, computing, _any_number)
    text = f"one of {', '.join(OPERATIONS)} is needed, not {operation[:60]!r}"
    raise InvalidParameter(f"operation: {text}", [FieldError("operation", text, operation[:60])])


def _any_number(_parts: int) -> None:
    """Accept any number of parts: a job has one image at a time in each of its places."""
