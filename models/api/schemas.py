"""The HTTP bodies, the same in a reply, a stream, a ZIP and on the command line."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from models.api.numbers import checked
from models.codec.description import Description
from models.codec.formats import OUTPUT_FORMATS
from models.domain.job import Match


class InfoOptions(BaseModel):
    """Options of `POST /info`, as query, form fields or JSON keys."""

    model_config = ConfigDict(extra="forbid")

    colour: bool = Field(True, description="false: no dominant colour, so that no pixel is decoded")
    appearance: bool = Field(
        False,
        description="true: `phash`, `blurhash` and `colours` in place of `colour`; the image is "
        "decoded whole",
    )


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
    quality: int | None = Field(None, description="that was chosen for `max_bytes`")
    name: str | None = None
    data: str | None = None


class VersionRecord(BaseModel):
    """One filtered version of one image."""

    index: int = Field(description="position of the version in the request, from 0")
    id: str | None = Field(None, description="the client's own id of the version")
    status: Literal["ok", "error"]
    image: FilteredImage | None = None
    error: Problem | None = None
    timing: dict[str, float] | None = Field(None, description="milliseconds by stage")


class Record(BaseModel):
    """The answer for one image; what it has depends on what was asked for."""

    index: int = Field(description="position of the image in the request, from 0")
    id: str | None = Field(None, description="the client's own id")
    source: str | None = Field(None, description="file name or URL")
    status: Literal["ok", "partial", "error"] = Field(
        description="partial: the labels or some of the versions failed, not all"
    )
    predictions: list[Prediction] | None = None
    logits: list[float] | str | None = Field(
        default=None, description="of output=logits: one value for each class, or base64 of float32"
    )
    embedding: list[float] | str | None = Field(
        default=None, description="of output=embedding: the features, or base64 of float32"
    )
    image: FilteredImage | None = None
    info: Description | None = Field(default=None, description="of POST /info")
    matches: list[Match] | None = Field(default=None, description="of POST /match, best first")
    versions: list[VersionRecord] | None = Field(default=None, description="in the order asked for")
    error: Problem | None = Field(
        default=None, description="of the image; when it is partial, of its labels"
    )
    timing: dict[str, float] | None = Field(
        default=None, description="milliseconds by stage; versions have their own"
    )


class ModelRecord(BaseModel):
    """The network and the weights that made an answer."""

    network: str | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="the network; answers of the default network to requests that choose none "
        "leave it out",
    )
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
    """How many images of the request were answered, and how; partial ones failed."""

    total: int
    succeeded: int
    failed: int


class Reply(BaseModel):
    """The whole reply of `POST /classify` and `POST /process`, results in input order."""

    model: ModelRecord | None = Field(None, description="which gave the labels, if there are any")
    results: list[Record]
    summary: Summary


class JsonImage(BaseModel):
    """One image of a JSON request: a URL or a data URI."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(None, max_length=256, description="your own id")
    url: str | None = Field(None, description="where the image is fetched")
    data: str | None = Field(None, description="data:image/…;base64,…")


class JsonImages(BaseModel):
    """The images of a JSON request; its other keys are options."""

    model_config = ConfigDict(extra="allow")

    images: list[JsonImage] = []
    urls: list[str] = []


if TYPE_CHECKING:
    FormatName = str
else:  # the checker cannot read a Literal that is computed
    FormatName = Literal["jpeg", "jpg", *(f.value for f in OUTPUT_FORMATS if f.value != "jpeg")]
"""The name of an output format; `jpg` is another name of `jpeg`."""

Whole = Annotated[int, BeforeValidator(checked)]
"""A whole number, as text in plain digits: no `1_0`, no ` 1`, no `true`."""

WholeOrNone = Annotated[int | None, BeforeValidator(checked)]
"""The same, or none. In the schema of `Whole | None` pydantic does not write bounds as
`minimum`."""


class ClassifyOptions(BaseModel):
    """Options of `POST /classify`, as query, form fields or JSON keys."""

    model_config = ConfigDict(extra="forbid")

    top_k: Whole = Field(5, ge=1, le=1000, description="classes to return, best first")
    function_to_apply: Literal["softmax", "sigmoid", "none"] = Field(
        "softmax", description="what turns logits into scores"
    )
    model: str | None = Field(
        None, description="network that answers, one of `GET /models`; if not given, the first"
    )
    output: Literal["labels", "logits", "embedding"] = Field(
        "labels",
        description="labels; or logits, the values of all classes in class order; or embedding, "
        "the features before the last layer (512 of resnet18 and resnet34, 2048 of resnet50)",
    )
    vector_format: Literal["numbers", "base64"] = Field(
        "numbers",
        description="of logits and embeddings: JSON numbers, or base64 of little-endian float32",
    )


class MatchOptions(BaseModel):
    """Options of `POST /match`, as query or form fields."""

    model_config = ConfigDict(extra="forbid")

    template: bytes = Field(None, strict=True, validate_default=True)
    k: Whole = Field(1, ge=1, le=100, description="most places in an image, best first")
    threshold: Annotated[float, BeforeValidator(checked)] = Field(
        0.5, ge=-1, le=1, description="least score of a place"
    )


class EncodingOptions(BaseModel):
    """How filtered images are encoded, beside the options of `POST /filter` and `POST /process`."""

    model_config = ConfigDict(extra="forbid")

    format: FormatName | None = Field(
        None, description="format of the answer; else the Accept header, else the source's"
    )
    quality: WholeOrNone = Field(
        None, ge=1, le=100, description="of JPEG, WebP and AVIF: 90, 80 and 75 if not given"
    )
    progressive: bool | None = Field(
        None, description="of JPEG: shown coarse first, a tenth smaller, slower to make"
    )
    chroma: Annotated[
        Literal["420", "422", "444"] | None,
        BeforeValidator(lambda given: str(given) if type(given) is int else given),
    ] = Field(None, description="of JPEG and AVIF: chroma subsampling; 420 if not given")
    lossless: bool | None = Field(None, description="of WebP: every pixel as it is")
    png_level: WholeOrNone = Field(
        None,
        ge=0,
        le=9,
        description="of PNG: zlib's level, 0 stored, 9 smallest; if not given, run lengths, which "
        "are faster than level 1",
    )
    avif_speed: WholeOrNone = Field(
        None, ge=0, le=10, description="of AVIF: 0 smallest, 10 fastest; 9 if not given"
    )
    metadata: Literal["strip", "keep"] | None = Field(
        None,
        description="strip, the default, leaves the copyright alone; keep, of all formats but "
        "GIF, leaves of the source's EXIF all that still holds: not thumbnail, maker's notes, XMP, "
        "nor the profile, since pixels are sRGB and upright",
    )
    max_bytes: WholeOrNone = Field(
        None,
        ge=1,
        le=1 << 40,
        description="of JPEG, WebP and AVIF: the highest quality whose file has at most this size, "
        "up to `quality`; X-Quality and records state it",
    )
    min_quality: WholeOrNone = Field(
        None, ge=1, le=100, description="lowest quality for max_bytes; 1 if not given"
    )
    frames: Literal["first", "all"] | None = Field(
        None,
        description="of POST /filter for GIF, PNG and WebP: first, the default, filters the first "
        "frame of an animation alone; all filters each frame and answers with an animation",
    )


class FilterOptions(EncodingOptions):
    """Options of `POST /filter`: `ops`, `preset`, or `name` with parameters of that filter."""

    model_config = ConfigDict(extra="allow")

    ops: str | list[Any] | None = Field(
        None,
        description='chain of filters: [{"name": "gaussian_blur", "sigma": 2}, …]',
        examples=['[{"name": "gaussian_blur", "sigma": 2}, {"name": "grayscale"}]'],
    )
    name: str | None = Field(None, description="one filter; its parameters stand beside it")
    overlay: bytes | None = Field(
        None, strict=True, description="file of a form: the picture of the filter `overlay`"
    )
    preset: str | None = Field(
        None,
        description="a chain with output options that the operator keeps, one of `presets` in "
        "GET /filters; beside it only output options may stand that the preset leaves open",
    )


class ProcessOptions(EncodingOptions, ClassifyOptions):
    """Options of `POST /process`; a version may have encoding options of its own."""

    labels: bool = Field(True, description="false: filtered versions only")
    versions: str | list[Any] = Field(
        [],
        description="each what POST /filter takes, and an id if you like: "
        '[{"id": "small", "ops": [{"name": "grayscale"}], "format": "webp"}, …]',
        examples=['[{"id": "grey", "name": "grayscale"}, {"name": "sobel", "format": "png"}]'],
    )


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
        "one more plane; keep: alpha is copied; drop: the result is opaque; over: united with that "
        "of a picture; shape: alpha changes, colours are copied"
    )
    border: str | None = Field(description="what lies outside the image; a parameter may say so")
    result_shape: Literal["same", "colour", "alpha", "no alpha", "turned", "resized"]
    tolerance: str = Field(description="distance from the reference implementation")
    example: dict[str, Any] = Field(description="one entry of `ops`")
    spec_version: int = Field(description="raised when a filter gives other bytes")
    thumbnail: str = Field(description="path of a picture before and after")


class FilterCatalogue(BaseModel):
    """Every filter and every preset there is."""

    spec_version: int
    filters: list[FilterRecord]
    presets: dict[str, dict[str, Any]] = Field(
        description="the operator's presets by name, each what POST /filter takes"
    )


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
