"""The status codes of errors, and when a call may be tried again."""

import grpc
import pytest

from app.grpc_service.calls import LONGEST_DETAIL, Refusal
from app.grpc_service.messages import message_class
from models.domain import errors
from models.domain.errors import ServiceError

OVERLOADED = errors.Overloaded("full", 2.5)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.MalformedRequest("no"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.TooLarge("no"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.UnsupportedMedia("no"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.Undecodable("no"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.NotFound("no"), grpc.StatusCode.NOT_FOUND),
        (errors.Unauthorized("no"), grpc.StatusCode.UNAUTHENTICATED),
        (errors.Forbidden("no"), grpc.StatusCode.PERMISSION_DENIED),
        (errors.RateLimited("no", retry_after=1.0), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (OVERLOADED, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (errors.Draining("no"), grpc.StatusCode.UNAVAILABLE),
        (errors.WorkerLost("no"), grpc.StatusCode.UNAVAILABLE),
        (errors.SlowBody("no"), grpc.StatusCode.DEADLINE_EXCEEDED),
        (errors.DeadlineExceeded("no"), grpc.StatusCode.DEADLINE_EXCEEDED),
        (errors.InternalError("no"), grpc.StatusCode.INTERNAL),
    ],
    ids=lambda given: type(given).__name__,
)
def test_every_error_has_a_code(error: ServiceError, code: grpc.StatusCode) -> None:
    assert Refusal.of(error).code is code


def test_a_refusal_says_when_to_try_again() -> None:
    metadata = dict(Refusal.of(OVERLOADED).metadata)
    assert (metadata["retry-after"], metadata["grpc-retry-pushback-ms"]) == ("3", "3000")
    status = message_class("google.rpc.Status").FromString(metadata["grpc-status-details-bin"])
    assert (status.code, status.message) == (8, "full")
    delay = message_class("google.rpc.RetryInfo")()
    assert status.details[0].Unpack(delay)
    assert delay.retry_delay.seconds == 3
    assert Refusal.of(errors.NotFound("no")).metadata == ()


def test_a_long_text_is_cut() -> None:
    assert len(Refusal.of(errors.NotFound("x" * 5000)).detail) == LONGEST_DETAIL
