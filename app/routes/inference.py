"""The Open Inference Protocol, version 2, at `/v2`, which clients of KServe and Triton speak."""

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from app.http.request import before
from app.intake.inference import (
    InferenceModel,
    TensorSpec,
    collect,
    model_named,
    models_of,
)
from app.intake.stream import is_stream
from app.intake.wanted import ImageRequest
from app.pipeline.outcomes import Answer, Timings
from app.responses.inference import inference_reply
from app.routes.image_route import ImageRoute
from app.routes.network_choice import missing
from app.routes.openapi import INFERRED, OBJECT, OBJECTS, OF_MODEL, infer_document
from app.service import Service, ServiceOf, service_in
from models.domain.deadline import Deadline
from models.domain.errors import Unavailable, UnsupportedMedia
from models.version import VERSION

router = APIRouter(tags=["inference"], responses=OBJECT)
_computing = APIRouter(route_class=ImageRoute)


@_computing.post("/v2/models/{model}/versions/{version}/infer", include_in_schema=False)
@_computing.post(
    "/v2/models/{model}/infer",
    operation_id="v2_infer",
    responses=INFERRED,
    openapi_extra=infer_document(),
)
async def infer(request: Request) -> Response:
    """Compute the outputs of a model for images: files, samples, or the network's input."""
    service, began = service_in(request.scope), time.monotonic()
    if is_stream(request.headers.get("content-type", "")):
        raise UnsupportedMedia("an inference request is application/json or octets, no stream")
    names = request.path_params
    model = model_named(service.computing().networks, names["model"], names.get("version"))
    if model.served.model is None:
        raise missing(model.served)
    permit, timings = request.scope["permit"], Timings()
    found: list[Answer] = []
    failed = True
    try:
        with timings.measure("intake"):
            reading = collect(request, permit, service.settings, model)
            asked = await before(permit.deadline, reading)
        if service.pipeline.spans is not None:
            service.pipeline.spans.stages(timings)
        permit.deadline = Deadline(min(permit.deadline.at, began + asked.timeout))
        permit.expect(asked.n)
        found = await service.pipeline.whole(ImageRequest(asked.items, asked.wanted), permit)
        response = await inference_reply(request, found, model, asked, timings)
        failed = response.status_code != 200
    finally:
        traces = [each.stages.trace for each in found]
        service.inference[model.name].note(time.monotonic() - began, traces, failed=failed)
    return response


router.include_router(_computing)

EXTENSIONS = (
    "classification",
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "statistics",
    "parameters",
)
"""The extensions of Triton that are supported, by the names that it gives them."""

PLATFORM = "pytorch_eager"

_TYPES = {"BYTES": "TYPE_STRING", "UINT8": "TYPE_UINT8", "FP32": "TYPE_FP32"}
"""The names of datatypes in the configuration of a model."""


@router.get("/v2/", include_in_schema=False)
@router.get("/v2", operation_id="v2_server")
async def server() -> Response:
    """Name the server, its version, and the extensions of the protocol that it supports."""
    return JSONResponse({"name": "darkroom", "version": VERSION, "extensions": EXTENSIONS})


@router.get("/v2/health/live", operation_id="v2_live")
async def live() -> Response:
    """Answer while the event loop runs."""
    return JSONResponse({"live": True})


@router.get("/v2/health/ready", operation_id="v2_ready")
async def ready(service: ServiceOf) -> Response:
    """Answer 200 if the server is not stopping and its worker works, as `/readyz` does."""
    if not service.ready:
        raise Unavailable("the server is not ready; GET /readyz?verbose says why")
    return JSONResponse({"live": True, "ready": True})


@router.get("/v2/models/stats", operation_id="v2_statistics")
async def statistics(service: ServiceOf) -> Response:
    """Count the requests of all models that this process has answered, and their times."""
    return _statistics(service, models_of(service.computing().networks))


async def _model(service: ServiceOf, model: str, version: str | None = None) -> InferenceModel:
    return model_named(service.computing().networks, model, version)


ModelOf = Annotated[InferenceModel, Depends(_model)]


def _of_model(operation_id: str, ending: str = "") -> Callable[[Any], Any]:
    """Return the decorator of an endpoint of a model, whose path may name a version."""
    path, version = "/v2/models/{model}", "/versions/{version}"

    def add(endpoint: Any) -> Any:
        router.get(path + version + ending, include_in_schema=False)(endpoint)
        return router.get(path + ending, operation_id=operation_id, responses=OF_MODEL)(endpoint)

    return add


@_of_model("v2_model_ready", "/ready")
async def model_ready(service: ServiceOf, found: ModelOf) -> Response:
    """Answer 200 if the model has weights and the server is ready."""
    if found.served.model is None:
        raise missing(found.served)
    if not service.ready:
        raise Unavailable("the server is not ready; GET /readyz?verbose says why")
    return JSONResponse({"name": found.name, "ready": True})


@_of_model("v2_model_config", "/config")
async def configuration(found: ModelOf) -> Response:
    """Describe a model as the configuration of Triton does."""
    return JSONResponse(
        {
            "name": found.name,
            "platform": PLATFORM,
            "backend": "darkroom",
            "max_batch_size": 0,  # shapes contain the number of images, as those of the metadata do
            "input": [_configured(each) | {"optional": True} for each in found.inputs],
            "output": [_configured(each) for each in found.outputs],
        }
    )


@_of_model("v2_model_statistics", "/stats")
async def model_statistics(service: ServiceOf, found: ModelOf) -> Response:
    """Count the requests of a model that this process has answered, and their times."""
    return _statistics(service, [found])


@_of_model("v2_model")
async def metadata(found: ModelOf) -> Response:
    """Describe the inputs and outputs of a model, and name its version."""
    return JSONResponse(
        {
            "name": found.name,
            "versions": [found.version] if found.version else [],
            "platform": PLATFORM,
            "inputs": [_described(each) for each in found.inputs],
            "outputs": [_described(each) for each in found.outputs],
        }
    )


@router.get("/v2/repository/index", include_in_schema=False)
@router.post("/v2/repository/index", operation_id="v2_repository_index", responses=OBJECTS)
async def index(service: ServiceOf) -> Response:
    """List all models, with the reason if a model has no weights."""
    return JSONResponse([_indexed(each) for each in models_of(service.computing().networks)])


def _described(tensor: TensorSpec) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}


def _configured(tensor: TensorSpec) -> dict[str, Any]:
    return {"name": tensor.name, "data_type": _TYPES[tensor.datatype], "dims": tensor.shape}


def _indexed(model: InferenceModel) -> dict[str, str]:
    if model.served.model is not None:
        return {"name": model.name, "version": model.version, "state": "READY"}
    reason = model.served.problem or "no weights are loaded"
    return {"name": model.name, "state": "UNAVAILABLE", "reason": reason}


def _statistics(service: Service, models: list[InferenceModel]) -> Response:
    found = [service.inference[each.name].shown(each.name, each.version) for each in models]
    return JSONResponse({"model_stats": found})
