"""The routes of `/jobs`: a database that does not answer is no fault of the request."""

import logging
import sqlite3
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from models.domain.errors import Unavailable
from models.domain.job_errors import StorageFull

log = logging.getLogger("darkroom.jobs")

RETRY_AFTER = 5.0
"""Seconds after which a client may ask again whose request the database did not answer."""


FULL = "the disk of the database of jobs is full; its operator must free some space"

_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
"""What SQLite answers when the disk is full; the second one comes of its index of the log."""

_DISK_FULL = "53100"
"""The same of PostgreSQL (SQLSTATE `disk_full`)."""


class JobRoute(APIRoute):
    """Route that answers 503 where the database of jobs fails, so that clients try again, and 507
    where its disk is full.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request; it raises Unavailable and StorageFull."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                if not _is_of_database(error):
                    raise
                if _is_full(error):
                    log.warning("%s: %s", FULL, error)
                    raise StorageFull(FULL, retry_after=RETRY_AFTER) from None
                log.warning("the database of jobs does not answer: %s", error)
                text = "the database of jobs does not answer; try again later"
                raise Unavailable(text, retry_after=RETRY_AFTER) from None

        return handled


def _is_of_database(error: Exception) -> bool:
    # Looked up, not imported: only servers with jobs have loaded SQLAlchemy.
    loaded = sys.modules.get("sqlalchemy.exc")
    return loaded is not None and isinstance(error, loaded.SQLAlchemyError)


def _is_full(error: Exception) -> bool:
    """Return whether an error of SQLAlchemy says that the disk of the database is full."""
    cause = getattr(error, "orig", None)
    code, state = getattr(cause, "sqlite_errorcode", None), getattr(cause, "sqlstate", None)
    return code in _FULL or state == _DISK_FULL
