"""The errors of jobs, which are part of the tree of `errors.py`.

ServiceError
├── ResultsExpired 410           the results were kept for their time
├── IdempotencyMismatch 422      the key was used for another body
├── TooManyJobs 429              the client has as many unfinished jobs as it may have
├── TooManyFollowers 429         the client follows as many results as it may
├── JobsDisabled 501             this server has no data folder
└── StorageFull 507              no room in the data folder, or in the destination of a job
"""

from models.domain.errors import ServiceError


class ResultsExpired(ServiceError):
    """The results of the job were kept for their time and are gone."""

    status, code, title = 410, "results_expired", "Results expired"


class IdempotencyMismatch(ServiceError):
    """The client used this idempotency key before, for something else."""

    status, code, title = 422, "idempotency_mismatch", "Idempotency key used before"


class TooManyJobs(ServiceError):
    """The client has as many unfinished jobs as it may have."""

    status, code, title, retryable = 429, "too_many_jobs", "Too many jobs", True


class TooManyFollowers(ServiceError):
    """The client follows the results of jobs with as many requests as it may."""

    status, code, title, retryable = 429, "too_many_followers", "Too many followers", True


class JobsDisabled(ServiceError):
    """This server keeps no jobs."""

    status, code, title = 501, "jobs_disabled", "Jobs disabled"


class StorageFull(ServiceError):
    """The data folder, or the destination of a job, has no room for this."""

    status, code, title, retryable = 507, "storage_full", "Storage full", True
