"""The work on one image, from the moment its size is known until it has been computed."""

from collections.abc import Hashable
from types import TracebackType
from typing import TYPE_CHECKING

from models.domain.errors import DeadlineExceeded
from models.domain.job import Trace

if TYPE_CHECKING:
    from app.admission.permit import Permit


class Work:
    """Work on one image, as a context manager; `trace` is set when it is done.

    At the moment `starts` the device has certainly begun with it, as far as can be predicted.
    """

    def __init__(
        self, permit: "Permit", kind: Hashable, pixels: int, charged: int, starts: float
    ) -> None:
        self._permit = permit
        self.kind = kind
        self.pixels = pixels
        self.charged = charged
        self.starts = starts
        self.trace: Trace | None = None

    def __enter__(self) -> "Work":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._permit.end(self, self.trace, isinstance(error, DeadlineExceeded))
