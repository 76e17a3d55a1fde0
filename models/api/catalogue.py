"""The bodies of `GET /filters` and `GET /models`."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from models.api.schemas import ModelRecord


class FilterRecord(BaseModel):
    """One filter: what it does, its parameters, and what a client must know of its results."""

    name: str
    group: str = Field(description="the kind of filter, such as blur or edges")
    description: str
    parameters: dict[str, dict[str, Any]] = Field(
        description="JSON Schemas by name, with default, range and unit"
    )
    alpha: str = Field(
        description="point: colours only; premul: colour times alpha is filtered; plane: alpha is "
        "one more plane; keep: alpha is copied; drop: the result is opaque"
    )
    border: str | None = Field(description="what lies outside the image; a parameter may say so")
    result_shape: Literal["same", "colour", "no alpha", "turned", "resized"]
    tolerance: str = Field(description="distance from the reference implementation")
    example: dict[str, Any] = Field(description="one entry of `ops`")
    spec_version: int = Field(description="raised when a filter gives other bytes")
    thumbnail: str = Field(description="path of a picture before and after")


class FilterCatalogue(BaseModel):
    """Every filter there is."""

    spec_version: int
    filters: list[FilterRecord]


class ClassRecord(BaseModel):
    """One class of a model."""

    class_id: int
    label: str
    wnid: str | None = Field(None, description="WordNet id, where the label set has them")


class ServedModel(ModelRecord):
    """A network with its weights, and their classes in order."""

    features: int = Field(description="values of an embedding")
    classes: list[ClassRecord]


class ModelCatalogue(BaseModel):
    """The networks that have weights; the first is the one that requests get by default."""

    models: list[ServedModel]
    problem: str | None = Field(
        None, description="why a network has no weights, if one has none, and what to do"
    )
