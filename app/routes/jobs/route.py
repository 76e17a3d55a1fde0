"""The routes of `/jobs`: a database that does not answer is no fault of the request."""

import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from models.domain.errors import Unavailable

log = logging.getLogger("darkroom.jobs")

RETRY_AFTER = 5.0
"""Seconds after which a client may ask again whose request the database did not answer."""


class JobRoute(APIRoute):
    """Route that answers 503 where the database of jobs fails, so that clients try again."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request; it raises Unavailable."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                if not _is_of_database(error):
                    raise
                log.warning("the database of jobs does not answer: %s", error)
                text = "the database of jobs does not answer; try again later"
                raise Unavailable(text, retry_after=RETRY_AFTER) from None

        return handled


def _is_of_database(error: Exception) -> bool:
    # Looked up, not imported: only servers with jobs have loaded SQLAlchemy.
    loaded = sys.modules.get("sqlalchemy.exc")
    return loaded is not None and isinstance(error, loaded.SQLAlchemyError)
