"""Serve `/livez`, `/readyz`, `/startupz` and `/metrics`, none of which waits for work."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from app.routes.middleware import METRICS_PORT
from app.service import Service, ServiceOf
from app.telemetry.canary import Readiness
from models.networks.served import chosen

router = APIRouter(tags=["health"])

_NOT_YET: dict[int | str, dict[str, Any]] = {503: {"description": "Not, or not yet"}}
_VERBOSE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"type": "object"}}}}
}


@router.get("/livez", operation_id="livez", response_class=PlainTextResponse)
async def livez() -> Response:
    """Answer while the event loop runs."""
    return PlainTextResponse("ok\n")


@router.get(
    "/readyz",
    operation_id="readyz",
    response_class=PlainTextResponse,
    responses=_NOT_YET | _VERBOSE,
)
@router.get("/health", include_in_schema=False)
@router.get("/healthz", include_in_schema=False)
async def readyz(service: ServiceOf, verbose: str | None = Query(None)) -> Response:
    """Answer 200 if the server is not stopping and its worker works; `?verbose` gives details."""
    found = service.canary.readiness()
    ready = found.ready and not service.stopping.is_set()
    status = 200 if ready else 503
    if verbose is None:
        return PlainTextResponse("ok\n" if ready else "not ready\n", status)
    word = "degraded" if service.computing().degraded else "ok"
    shown = {"status": word if ready else "not ready"} | _checks(service, found)
    return JSONResponse(shown, status)


@router.get(
    "/startupz", operation_id="startupz", response_class=PlainTextResponse, responses=_NOT_YET
)
async def startupz(service: ServiceOf) -> Response:
    """Answer 200 once the first canary has passed."""
    started = service.canary.started
    return PlainTextResponse("ok\n" if started else "starting\n", 200 if started else 503)


@router.get("/metrics", operation_id="metrics", response_class=PlainTextResponse)
async def metrics(request: Request, service: ServiceOf) -> Response:
    """Return Prometheus metrics in the format that the scraper asks for."""
    if service.settings.metrics_port and METRICS_PORT not in request.scope:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    body, kind = await service.metrics.text(request.headers.get("accept", ""))
    return Response(body, media_type=kind)


def _checks(service: Service, found: Readiness) -> dict[str, Any]:
    load, age = found.load, found.age
    networks = service.computing().networks
    default = chosen(networks, None)
    others = {each.name: each.problem or "ok" for each in networks} if len(networks) > 1 else {}
    return ({"networks": others} if others else {}) | {
        "stopping": service.stopping.is_set(),
        "canary": {
            "ready": found.ready,
            "seconds_ago": None if age is None else round(age, 3),
            "problem": found.problem,
        },
        "worker": {
            "alive": load.alive,
            "device": load.device,
            "degraded": service.computing().degraded,
            "queued_images": load.queued_jobs,
            "running_images": load.running_jobs,
            "images_per_second": round(load.service_rate, 1),
        },
        "decoders": service.decoders.state(),
        "weights": default.model.record_for(chosen=False).model_dump()
        if default.model
        else {"status": "missing", "problem": default.problem},
    }
