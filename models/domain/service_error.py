"""The base class of every error that a client can get; `errors.py` has the tree of them."""

from collections.abc import Sequence
from typing import ClassVar

from models.domain.field_error import FieldError


class ServiceError(Exception):
    """An error with a status, a stable code and a text the client may read.

    `detail` is public: it states what is wrong and what to do, never anything internal. Clients get
    the seconds of `retry_after` if another try can help.
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
