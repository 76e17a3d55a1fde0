"""The HTTP bodies, the same in a reply, a stream, a ZIP and on the command line."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Prediction(BaseModel):
    """One class of one image."""

    label: str
    wnid: str | None = Field(None, description="WordNet id, where the label set has them")
    class_id: int
    score: float


class Problem(BaseModel):
    """RFC 9457 problem details; `type` is a stable URN per kind of problem."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str | None = None
    request_id: str | None = None
    item_index: int | None = None
    errors: list[dict[str, Any]] | None = Field(
        None, description="wrong fields: path, message, given"
    )


class FilteredImage(BaseModel):
    """What a filter chain gave; `data` is base64 in JSON Lines, `name` a member of a ZIP."""

    media_type: str
    width: int
    height: int
    bytes: int
    name: str | None = None
    data: str | None = None


class Record(BaseModel):
    """The answer for one image."""

    index: int = Field(description="position of the image in the request, from 0")
    id: str | None = Field(None, description="the client's own id")
    source: str | None = Field(None, description="file name or URL")
    status: Literal["ok", "error"]
    predictions: list[Prediction] | None = None
    image: FilteredImage | None = None
    error: Problem | None = None
    timing: dict[str, float] | None = Field(None, description="milliseconds by stage")


class ModelRecord(BaseModel):
    """Which weights made an answer."""

    name: str
    sha256: str
    label_set: str
    n_classes: int
    random: bool = Field(description="true: untrained weights, the labels mean nothing")
    preprocessing: int = Field(description="version of the preprocessing definition")
    precision: str
    device: str
    warning: str | None = Field(
        None, description="why the labels are not those one would expect, where they are not"
    )


class Summary(BaseModel):
    """How many images of the request were answered, and how."""

    total: int
    succeeded: int
    failed: int


class ClassifyReply(BaseModel):
    """The whole reply of `POST /classify`, results in input order."""

    model: ModelRecord
    results: list[Record]
    summary: Summary


class JsonImage(BaseModel):
    """One image of a JSON request: a URL or a data URI."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(None, max_length=256)
    url: str | None = None
    data: str | None = Field(None, description="data:image/…;base64,…")


class JsonImages(BaseModel):
    """The images of a JSON request; its other keys are options."""

    model_config = ConfigDict(extra="allow")

    images: list[JsonImage] = []
    urls: list[str] = []


class ClassifyOptions(BaseModel):
    """Options of `POST /classify`, as query, form fields or JSON keys."""

    model_config = ConfigDict(extra="forbid")

    top_k: int = Field(5, ge=1, le=1000, description="classes to return, best first")
    function_to_apply: Literal["softmax", "sigmoid", "none"] = Field(
        "softmax", description="what turns logits into scores"
    )


class FilterOptions(BaseModel):
    """Options of `POST /filter`: `ops`, or `name` and that filter's own parameters beside it."""

    model_config = ConfigDict(extra="allow")

    ops: str | list[Any] | None = Field(
        None, description='chain of filters: [{"name": "gaussian_blur", "sigma": 2}, …]'
    )
    name: str | None = Field(None, description="one filter; its parameters stand beside it")
    format: Literal["jpeg", "jpg", "png", "webp", "avif"] | None = Field(
        None, description="format of the answer; else the Accept header, else the source's"
    )
    quality: int | None = Field(None, ge=1, le=100, description="of JPEG, WebP and AVIF")
