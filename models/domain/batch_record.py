"""The record of a finished micro-batch, for people that look for the reason of a wait."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchedImage:
    """One image of a batch: the request it belongs to, its wait in seconds, and its pixels."""

    request_id: str
    waited: float
    pixels: int
    outcome: str
    """ok, or the code of the image's error."""


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One finished micro-batch. Times are in seconds.

    `id` begins with the process id of the worker. `released_at` is in seconds since 1970. `reason`
    is full, budget, delay or idle. `network` is empty for filters, and `filters` for networks.
    """

    id: str
    device: str
    released_at: float
    reason: str
    lane: str
    operation: str
    network: str
    filters: tuple[str, ...]
    size: int
    pixels: int
    longest_wait: float
    upload: float
    decode: float
    compute: float
    download: float
    images: tuple[BatchedImage, ...]
