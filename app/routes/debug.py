"""`GET /debug/batches`: the last micro-batches, for people that look for the reason of a wait."""

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from app.routes.documentation.openapi import NOT_LISTED
from app.routes.images.image_route import client_name
from app.service import ServiceOf
from models.api.batches import BatchListing

router = APIRouter(tags=["debug"])


@router.get(
    "/debug/batches",
    operation_id="debug_batches",
    response_model=BatchListing,
    responses=NOT_LISTED,
)
async def debug_batches(
    request: Request, service: ServiceOf, last: int = Query(50, ge=1, le=1000)
) -> Response:
    """List the last batches of all workers, newest first: their images, waits and stage times.

    It is there where DARKROOM_DEBUG_BATCHES is set, and needs an API key where images do, because
    it shows the ids of requests.
    """
    if not service.settings.debug_batches:
        raise HTTPException(404, "batches are not listed; set DARKROOM_DEBUG_BATCHES to a number")
    client_name(service, request.scope)
    found = BatchListing(batches=await service.batches(last))
    headers = {"Cache-Control": "no-store"}
    return Response(found.model_dump_json(), headers=headers, media_type="application/json")
