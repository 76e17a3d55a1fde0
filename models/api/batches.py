"""The body of `GET /debug/batches`."""

from pydantic import BaseModel

from models.domain.batch_record import BatchRecord


class BatchListing(BaseModel):
    """The last batches of all workers, the newest first; times are in seconds."""

    batches: list[BatchRecord]
