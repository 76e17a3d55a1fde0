"""What is served: `GET /filters`, `GET /filters/{name}`, its thumbnail, `GET /models`."""

import asyncio
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from app.service import ServiceOf
from app.thumbnails import thumbnail
from models.schemas import ModelRecord
from workers.filters import FILTERS, SPEC_VERSION, describe

router = APIRouter(tags=["catalogue"])

_PNG = "image/png"


@router.get("/filters")
async def filters() -> dict[str, Any]:
    """Every filter with its JSON Schema, units, defaults, an example and a link to its picture."""
    return {"spec_version": SPEC_VERSION, "filters": [_described(name) for name in FILTERS]}


@router.get("/filters/{name}")
async def one_filter(name: str) -> dict[str, Any]:
    """One filter."""
    return _described(name)


@router.get(
    "/filters/{name}/thumbnail",
    response_class=Response,
    responses={200: {"content": {_PNG: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def filter_thumbnail(name: str) -> Response:
    """A picture before and after the filter's own example, side by side, as a PNG."""
    _check(name)
    picture = await asyncio.to_thread(thumbnail, name)
    return Response(picture, headers={"Cache-Control": "max-age=3600"}, media_type=_PNG)


@router.get("/models", response_model_exclude_none=True)
async def models(service: ServiceOf) -> dict[str, Any]:
    """Which weights classify, with their digest; the labels in class order."""
    if service.model is None:
        return {"models": [], "problem": service.computing().weights_problem}
    record: ModelRecord = service.model.record
    labels = service.model.labels
    classes = [
        {"class_id": n, "label": label, "wnid": wnid}
        for n, (label, wnid) in enumerate(zip(labels.labels, labels.wnids, strict=True))
    ]
    return {"models": [record.model_dump() | {"classes": classes}]}


def _described(name: str) -> dict[str, Any]:
    _check(name)
    return describe(FILTERS[name]) | {"thumbnail": f"/filters/{name}/thumbnail"}


def _check(name: str) -> None:
    if name not in FILTERS:
        raise HTTPException(404, f"no filter {name!r}; GET /filters lists them all")
