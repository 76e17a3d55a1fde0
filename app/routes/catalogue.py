"""List filters and networks: `/filters`, `/filters/{name}`, its thumbnail, `/models`."""

import asyncio
import functools
from collections.abc import Sequence

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from app.http.problems import LONGEST_NAME
from app.intake.presets import Presets
from app.responses.thumbnails import thumbnail
from app.routes.openapi import NOT_FOUND, Responses
from app.service import ServiceOf
from models.api.schemas import (
    ClassRecord,
    FilterCatalogue,
    FilterRecord,
    ModelCatalogue,
    ServedModel,
)
from models.networks.served import Model, ServedNetwork
from workers.filters.base import SPEC_VERSION
from workers.filters.registry import FILTERS, describe

router = APIRouter(tags=["catalogue"])

_PNG = "image/png"
_JSON = "application/json"

_PICTURE: Responses = {200: {"content": {_PNG: {"schema": {"type": "string", "format": "binary"}}}}}


@router.get("/filters", operation_id="list_filters", response_model=FilterCatalogue)
async def filters(service: ServiceOf) -> Response:
    """List every filter with its JSON Schema, units, defaults, an example and a link to its
    picture, and the presets of the operator.
    """
    return Response(_catalogue(service.presets), media_type=_JSON)


@router.get(
    "/filters/{name}",
    operation_id="describe_filter",
    response_model=FilterRecord,
    responses=NOT_FOUND,
)
async def one_filter(name: str) -> Response:
    """Describe a filter."""
    _check(name)
    return Response(_body(_record(name)), media_type=_JSON)


@router.get(
    "/filters/{name}/thumbnail",
    operation_id="filter_thumbnail",
    response_class=Response,
    responses=_PICTURE | NOT_FOUND,
)
async def filter_thumbnail(name: str, service: ServiceOf) -> Response:
    """Return a picture before and after the filter's own example, side by side, as a PNG."""
    _check(name)
    async with service.drawing:
        picture = await asyncio.to_thread(thumbnail, name)
    return Response(picture, headers={"Cache-Control": "max-age=3600"}, media_type=_PNG)


@router.get("/models", operation_id="list_models", response_model=ModelCatalogue)
async def models(service: ServiceOf) -> Response:
    """List the networks that classify, with the digest of their weights and their labels in class
    order.
    """
    networks = service.computing().networks
    if service.listed[0] is not networks:  # a thousand classes take milliseconds
        service.listed = networks, _models(networks)
    return Response(service.listed[1], media_type=_JSON)


@functools.cache
def _catalogue(presets: Presets) -> bytes:
    every = [_record(name) for name in FILTERS]
    named = {name: {**options} for name, options in presets.listed.items()}
    return _body(FilterCatalogue(spec_version=SPEC_VERSION, filters=every, presets=named))


def _record(name: str) -> FilterRecord:
    group = FILTERS[name].__module__.rpartition(".")[2]  # the family of the filter
    more = {"group": group, "thumbnail": f"/filters/{name}/thumbnail"}
    return FilterRecord.model_validate(describe(FILTERS[name]) | more)


def _models(networks: Sequence[ServedNetwork]) -> bytes:
    """Return the body: the networks with weights; `problem` is about the first without weights."""
    lacking = (each.problem or "no weights are loaded" for each in networks if not each.model)
    models = [_model(each.model, each.features) for each in networks if each.model is not None]
    catalogue = ModelCatalogue(models=models, problem=next(lacking, None))
    return _body(catalogue, exclude_none=True)


def _model(model: Model, features: int) -> ServedModel:
    labels = model.labels
    classes = [
        ClassRecord(class_id=n, label=label, wnid=wnid)
        for n, (label, wnid) in enumerate(zip(labels.labels, labels.wnids, strict=True))
    ]
    return ServedModel(**model.record.model_dump(), features=features, classes=classes)


def _body(content: BaseModel, *, exclude_none: bool = False) -> bytes:
    return content.model_dump_json(exclude_none=exclude_none).encode()


def _check(name: str) -> None:
    if name not in FILTERS:
        raise HTTPException(404, f"no filter {name[:LONGEST_NAME]!r}; GET /filters lists them all")
