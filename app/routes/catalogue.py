"""What is served: `GET /filters`, `GET /filters/{name}`, `GET /models`."""

from typing import Any

from fastapi import APIRouter
from starlette.exceptions import HTTPException

from app.service import ServiceOf
from models.schemas import ModelRecord
from workers.filters import FILTERS, SPEC_VERSION, describe

router = APIRouter(tags=["catalogue"])


@router.get("/filters")
async def filters() -> dict[str, Any]:
    """Every filter with its JSON Schema, units, defaults and an example."""
    return {"spec_version": SPEC_VERSION, "filters": [describe(f) for f in FILTERS.values()]}


@router.get("/filters/{name}")
async def one_filter(name: str) -> dict[str, Any]:
    """One filter."""
    if name not in FILTERS:
        raise HTTPException(404, f"no filter {name!r}; GET /filters lists them all")
    return describe(FILTERS[name])


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
