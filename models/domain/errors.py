"""Every error that a client can get; of HTTP it has the status numbers only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class FieldError:
    """A wrong field: its JSON path, the fault and the given value."""

    path: str
    message: str
    given: object = None


class ServiceError(Exception):
    """An error with a status, a stable code and a text the client may read.

    `detail` is public: it states the fault and advice, never anything internal. Clients get the
    seconds of `retry_after` if another try can help.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False

    def __init__(
        self, detail: str, errors: Sequence[FieldError] = (), retry_after: float = 5.0
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        self.retry_after = retry_after


class MalformedRequest(ServiceError):
    """The request cannot be parsed."""

    status, code, title = 400, "malformed_request", "Malformed request"


class NotFound(ServiceError):
    """There is nothing at this address."""

    status, code, title = 404, "not_found", "Not Found"


class Unauthorized(ServiceError):
    """No API key was sent, or an unknown key."""

    status, code, title = 401, "unauthorized", "Unauthorized"


class Forbidden(ServiceError):
    """The API key is known and disabled."""

    status, code, title = 403, "forbidden", "Forbidden"


class ForeignOrigin(ServiceError):
    """A page of another origin sent a request that changes or computes something."""

    status, code, title = 403, "foreign_origin", "Foreign origin"


class ForeignHost(ServiceError):
    """The Host header has a name that is not the server's own."""

    status, code, title = 403, "foreign_host", "Foreign host"


class NotAcceptable(ServiceError):
    """No format the client accepts can be produced."""

    status, code, title = 406, "not_acceptable", "Not acceptable"


class SlowHeaders(ServiceError):
    """The headers of a request were not complete in time."""

    status, code, title, retryable = 408, "slow_headers", "Slow headers", True


class SlowBody(ServiceError):
    """The client stopped sending its body, or sends it too slowly."""

    status, code, title, retryable = 408, "slow_body", "Slow body", True


class TooLarge(ServiceError):
    """A body, a file or a number of images is over its limit."""

    status, code, title = 413, "too_large", "Too large"


class UrlTooLong(ServiceError):
    """The target of a request is over its limit."""

    status, code, title = 414, "url_too_long", "URL too long"


class HeadersTooLarge(ServiceError):
    """The headers of a request have too many bytes or lines, or Accept has too many parts."""

    status, code, title = 431, "headers_too_large", "Headers too large"


class TooManyConnections(ServiceError):
    """A client has as many connections as it may have."""

    status, code, title, retryable = 429, "too_many_connections", "Too many connections", True


class UnsupportedMedia(ServiceError):
    """The bytes are not an image of a format we read."""

    status, code, title = 415, "unsupported_media", "Unsupported media"


class UnsupportedCoding(UnsupportedMedia):
    """The body has a `Content-Encoding` that is not read; the answer names the formats that are."""


class Unprocessable(ServiceError):
    """Understood, but cannot be done."""

    status, code, title = 422, "unprocessable", "Unprocessable"


class Undecodable(Unprocessable):
    """The image is corrupt or truncated."""

    code, title = "undecodable", "Image cannot be decoded"


class BadArchive(Unprocessable):
    """A ZIP or TAR, or a member of it, cannot be read or breaks a limit."""

    code, title = "bad_archive", "Archive cannot be read"


class TooManyPixels(Unprocessable):
    """The image is larger than the pixel limit."""

    code, title = "too_many_pixels", "Too many pixels"


class Quarantined(Unprocessable):
    """The workers that computed the image ended, again and again."""

    code, title = "quarantined", "Quarantined"


class InvalidParameter(Unprocessable):
    """An option is unknown or out of range; `errors` carries the paths."""

    code, title = "invalid_parameter", "Invalid parameter"

    @classmethod
    def of(cls, path: str, message: str, given: object = None) -> "InvalidParameter":
        """Return the error of one field; its text begins with the path, unless that is empty."""
        return cls(f"{path}: {message}".removeprefix(": "), [FieldError(path, message, given)])


class AddressRefused(Unprocessable):
    """The URL points to an address this server does not fetch from."""

    code, title = "address_refused", "Address refused"


class RateLimited(ServiceError):
    """The client sends more images a second than it may."""

    status, code, title, retryable = 429, "rate_limited", "Rate limited", True


class Cancelled(ServiceError):
    """The client left before the answer."""

    status, code, title = 499, "cancelled", "Cancelled by the client"


class InternalError(ServiceError):
    """A fault of ours."""


class OriginFailed(ServiceError):
    """The origin of a URL answered badly or not at all."""

    status, code, title, retryable = 502, "origin_failed", "Origin failed", True


class OriginBusy(OriginFailed):
    """The origin of a URL could not be reached, or answered that it is busy.

    `retry_after` is 0 if the origin did not name a time.
    """


class Unavailable(ServiceError):
    """Come again later."""

    status, code, title, retryable = 503, "unavailable", "Unavailable", True


class Overloaded(Unavailable):
    """No permit is free; `reason` names the limit for metrics."""

    code, title = "overloaded", "Overloaded"

    def __init__(self, detail: str, retry_after: float, reason: str = "overloaded") -> None:
        super().__init__(detail, retry_after=retry_after)
        self.reason = reason


class ConnectionsExhausted(Unavailable):
    """The server has as many connections as it may have."""

    code, title = "connections_exhausted", "Connections exhausted"


class Draining(Unavailable):
    """This server is stopping, or stopped before the work was done."""

    code, title = "draining", "Draining"


class WeightsMissing(Unavailable):
    """There are no weights to classify with."""

    code, title, retryable = "weights_missing", "Weights missing", False


class WorkerLost(Unavailable):
    """The worker died while it held the job."""

    code, title = "worker_lost", "Worker lost"


class TimedOut(ServiceError):
    """Something took longer than it may."""

    status, code, title, retryable = 504, "timed_out", "Timed out", True


class DeadlineExceeded(TimedOut):
    """The request's own deadline passed."""

    code, title = "deadline_exceeded", "Deadline exceeded"


class OriginTimedOut(TimedOut):
    """The origin of a URL was too slow."""

    code, title = "origin_timed_out", "Origin timed out"


class ResultsExpired(ServiceError):
    """The results of the job were kept for their time and are gone."""

    status, code, title = 410, "results_expired", "Results expired"


class IdempotencyMismatch(ServiceError):
    """The client used this idempotency key before, for something else."""

    status, code, title = 422, "idempotency_mismatch", "Idempotency key used before"


class TooManyJobs(ServiceError):
    """The client has as many unfinished jobs as it may have."""

    status, code, title, retryable = 429, "too_many_jobs", "Too many jobs", True


class TooManyFailures(ServiceError):
    """More images of the job failed than its `max_failures` allows."""

    status, code, title = 422, "too_many_failures", "Too many failures"


class TooManyFollowers(ServiceError):
    """The client follows the results of jobs with as many requests as it may."""

    status, code, title, retryable = 429, "too_many_followers", "Too many followers", True


class JobsDisabled(ServiceError):
    """This server keeps no jobs."""

    status, code, title = 501, "jobs_disabled", "Jobs disabled"


class StorageFull(ServiceError):
    """The data folder, or the destination of a job, has no room for this."""

    status, code, title, retryable = 507, "storage_full", "Storage full", True
