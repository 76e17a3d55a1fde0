"""A typed request: its images and the work on each of them, independent of HTTP.

`/classify` wants labels (`Classify`), `/v2` perhaps of tensors (`ClassifyTensors`); `/filter` one
filtered version (`Version`), `/process` several parts of both kinds (`Parts`), `/info` and `/match`
their options. The format of a filtered image may depend on that of its source, which is known only
once the image has been read: the option `format` and the Accept header become a small value here.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from app.admission import Permit
from app.http.negotiation import STREAMS, Accept
from app.http.problems import MOST_ERRORS, read
from app.intake.item import Item
from app.intake.json_items import parsed_json
from app.intake.spool import Blob
from models.api.schemas import (
    EncodingOptions,
    FilterOptions,
    InfoOptions,
    MatchOptions,
    ProcessOptions,
)
from models.codec import ENCODABLE, Encoding, ImageFormat, ImageInfo, claimed_pixels, identify
from models.codec.costs import START, claimed_frames, encode_cost
from models.codec.encoder import OPTIONS_OF
from models.domain.errors import FieldError, InvalidParameter, NotAcceptable, ServiceError
from models.domain.image import Subsampling
from models.networks.served import Model, ServedNetwork, chosen
from workers.filters.base import Filter
from workers.filters.marks import MOST_PICTURE, Overlay
from workers.filters.registry import nanoseconds, parse_chain, parse_one
from workers.operations import Classify, DeviceJpeg, FilterChain

MAX_VERSIONS = 64
"""Largest number of filtered versions of one image."""

MAX_ID = 256
"""Largest number of characters of a version's id."""

_OF_ENCODING = set(EncodingOptions.model_fields)
_OF_ANY_FORMAT = {"quality", "metadata"}
"""Options of encoding that a version with a format of its own still takes from the request, if that
format has them."""

NETWORK, CODEC = 20_000, 1000
"""Microseconds that a network, and decoding and encoding, are expected to take for an image."""

DECODED_PIXEL, MATCHED_PIXEL = 20.0, 100.0
"""Nanoseconds that decoding, and finding a template, are expected to take for each pixel."""

LEAST_PIXELS, TYPICAL_PIXELS = 1 << 16, 1 << 20
"""Pixels from which work follows the pixels, and those of an image of which nothing is known."""


_ALL = frozenset(ENCODABLE)
_WILDCARDS = ("image/*", "*/*")


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The format of filtered images: the format of the source if `kept` has it, else `format`.

    Without a `format`, other sources are refused. A source that cannot be encoded counts as PNG, as
    does the first frame of a GIF, because filters make colours that no palette has.
    """

    format: ImageFormat | None
    kept: frozenset[ImageFormat] = frozenset()

    def of(self, source: ImageFormat, *, animated: bool = False) -> ImageFormat:
        """Return the format of the answer; raises NotAcceptable if Accept rules it out."""
        kept = source in ENCODABLE and (animated or source is not ImageFormat.GIF)
        own = source if kept else ImageFormat.PNG
        if own in self.kept:
            return own
        if self.format is None:
            raise NotAcceptable(
                f"images are encoded as {', '.join(f.media_type for f in ENCODABLE)}"
            )
        return self.format


AS_SOURCE = OutputFormat(None, _ALL)


def output_format(accept: Accept, *, strict: bool = False) -> OutputFormat:
    """Decide by the Accept header, else as the source, where no option names a format.

    A format that Accept names is a wish only if there is no wildcard beside it. Every browser sends
    `image/avif,image/webp,…,*/*`, which lists what it can show: taken as a wish, it turned JPEGs
    into AVIFs, whose encoding took 28 times the CPU time (11.7 ms and 0.42 ms, 500 × 375).

    With `strict` a format that Accept rules out is refused, unless Accept names the container of
    the images (a ZIP, JSON Lines), because then it says nothing about the images in it.
    """
    if accept.takes_all:
        return AS_SOURCE
    types = {f.media_type: f for f in reversed(ENCODABLE) if accept.names(f.media_type)}
    allowed = frozenset(f for f in ENCODABLE if accept.best([f.media_type]) is not None)
    if types:
        best = accept.best([*types])
        assert best is not None  # each of them is named with a quality above 0
        kept = allowed if any(map(accept.names, _WILDCARDS)) else frozenset()
        return AS_SOURCE if kept == _ALL else OutputFormat(types[best], kept)
    if not strict or any(map(accept.names, STREAMS)):
        return AS_SOURCE
    return OutputFormat(None, allowed)


def named_format(name: str) -> ImageFormat:
    """Return the format of a name that clients use; `jpg` is `jpeg`."""
    return ImageFormat("jpeg" if name == "jpg" else name)


@dataclass(frozen=True, slots=True)
class Version:
    """One filtered version of an image: its filters, and the format and options of its encoder.

    `id` is the client's own name of the version.
    """

    operation: FilterChain
    format: OutputFormat
    encoding: Encoding
    id: str | None = None

    def format_for(self, source: ImageInfo) -> ImageFormat:
        """Return the format of the answer for an image with this header.

        Raises NotAcceptable, and InvalidParameter if the format lacks an option of the encoder. The
        option `frames` has no effect on an image that is no animation.
        """
        animated = source.stack > 1
        chosen = self.format.of(source.format, animated=animated)
        encoding = self.encoding if animated else replace(self.encoding, frames="first")
        encoding.check(chosen)
        return chosen

    def on_gpu(self, format: ImageFormat) -> FilterChain:
        """Return the filters as a GPU runs them, which also makes baseline JPEGs of the results."""
        if format is not ImageFormat.JPEG or self.encoding.progressive or self.encoding.max_bytes:
            return self.operation
        chroma = Subsampling(":".join(self.encoding.subsampling))
        return replace(self.operation, jpeg=DeviceJpeg(self.encoding.quality_for(format), chroma))


@dataclass(frozen=True, slots=True)
class Parts:
    """Several parts of one image: labels and versions.

    `labels` is None if they are not wanted; it is an error if they are wanted and cannot be had.
    """

    labels: Classify | ServiceError | None
    versions: tuple[Version, ...]

    @property
    def n_parts(self) -> int:
        """Return the number of parts: 1 for labels, and 1 for each version."""
        return (self.labels is not None) + len(self.versions)


@dataclass(frozen=True, slots=True)
class ClassifyTensors:
    """The work on images that come as tensors of the same shape, not as files.

    The content of each is uint8 (height, width, 3) in RGB or, for an operation that is
    `preprocessed`, float32 (3, height, width), little-endian.
    """

    operation: Classify
    height: int
    width: int

    @property
    def n_pixels(self) -> int:
        """Return the pixels that an image counts as: 4 bytes each where it is preprocessed."""
        return self.height * self.width * (3 if self.operation.preprocessed else 1)

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the content of an image."""
        return self.height * self.width * 3 * (4 if self.operation.preprocessed else 1)


Wanted = Classify | ClassifyTensors | Version | Parts | InfoOptions | MatchOptions
"""What is wanted of every image of a request."""


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """A whole request as the pipeline takes it."""

    items: tuple[Item, ...]
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Admitted:
    """An image of a stream with its permit; an image that admission refused has no permit."""

    item: Item
    permit: Permit | None

    def release(self) -> None:
        """Release the permit; may be called again."""
        if self.permit is not None:
            self.permit.release()


def model_of(wanted: Wanted, networks: Sequence[ServedNetwork]) -> Model | None:
    """Return the model of the labels that are wanted, None without labels."""
    labels = wanted.labels if isinstance(wanted, Parts) else wanted
    return chosen(networks, labels.network).model if isinstance(labels, Classify) else None


def images_of_each(wanted: Wanted) -> int:
    """Return the number of images that an image counts as: the number of its parts."""
    return wanted.n_parts if isinstance(wanted, Parts) else 1


def work_on(content: Blob, wanted: Wanted, most: int) -> int:
    """Return the microseconds that a core is expected to take for an image.

    The start of a file claims its pixels. A file that does not show them, or that claims more than
    `most`, counts as `TYPICAL_PIXELS`: the image will be refused, and its claim must not count as
    work that other clients wait for. The filtered image counts as large as its source. All
    frames of an animation count if they are filtered.
    """
    if content.work:
        return content.work
    start, animated = content.start(START), False
    if isinstance(wanted, ClassifyTensors):
        pixels = wanted.n_pixels
    else:
        claimed = claimed_pixels(start)
        pixels = TYPICAL_PIXELS if claimed is None or claimed > most else claimed
    micro, nano = CODEC, DECODED_PIXEL
    versions: tuple[Version, ...] = ()
    if isinstance(wanted, Classify | ClassifyTensors):
        micro += NETWORK
    elif isinstance(wanted, Version):
        versions = (wanted,)
        if wanted.encoding.frames == "all" and (n := claimed_frames(start, content.size)) > 1:
            animated, pixels = True, min(most, n * pixels)
    elif isinstance(wanted, Parts):
        micro += NETWORK * isinstance(wanted.labels, Classify)
        versions = wanted.versions
    elif isinstance(wanted, MatchOptions):
        nano += MATCHED_PIXEL
    for each in versions:
        nano += nanoseconds(each.operation.filters)
        with suppress(NotAcceptable):  # the image will be refused
            format_ = each.format.of(identify(start) or ImageFormat.PNG, animated=animated)
            nano += 1e9 * encode_cost(1, format_, each.encoding)
    content.work = micro + int(max(pixels, LEAST_PIXELS) * nano / 1000)
    return content.work


def chain_of(options: FilterOptions) -> FilterChain:
    """Return the chain that `ops`, or `name` with parameters, asks for; raises InvalidParameter."""
    parameters = options.model_extra or {}
    if (options.ops is None) == (options.name is None):
        text = "exactly one of `ops`, `name` and `preset` is needed; GET /filters lists them"
        raise InvalidParameter.of("ops", text)
    if options.name is not None:
        return pictured((parse_one(options.name, parameters),), options.overlay)
    if parameters:
        unknown = [
            FieldError(name, "unknown parameter", given) for name, given in parameters.items()
        ]
        raise InvalidParameter(f"unknown parameter {unknown[0].path!r} beside `ops`", unknown)
    return pictured(parse_chain(_decoded("ops", options.ops)), options.overlay)


def pictured(filters: tuple[Filter, ...], picture: bytes | None) -> FilterChain:
    """Return a chain whose overlays have the request's picture, unless a preset has given theirs.

    Raises InvalidParameter for an overlay without a picture, for a picture without an overlay, and
    for pictures that have too many pixels together: they travel with every job of the chain.
    """
    lacking = [f for f in filters if isinstance(f, Overlay) and "picture" not in f.model_fields_set]
    if bool(lacking) == (picture is None):
        text = "the filter overlay needs a picture: a form has it as `overlay`, a preset as `file`"
        raise InvalidParameter.of("overlay", text)
    more = {"picture": picture}
    chain = FilterChain(tuple(f.model_copy(update=more) if f in lacking else f for f in filters))
    pixels = sum(f.n_pixels for f in chain.filters if isinstance(f, Overlay))
    if pixels > MOST_PICTURE:
        text = f"the pictures of a chain have {pixels:,} pixels; at most {MOST_PICTURE:,} are "
        text += "allowed together; use a smaller picture or fewer overlays"
        raise InvalidParameter.of("overlay", text)
    return chain


Expand = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Puts the options of a preset in the place of its name."""


def versions_of(
    options: ProcessOptions, accept: Accept, expanded: Expand = lambda each: each
) -> tuple[Version, ...]:
    """Return the versions of `POST /process`, with the options of presets that `expanded` puts in.

    To parse 64 chains of 32 filters takes 10 ms.

    Raises InvalidParameter with the first errors of the versions, and their paths.
    """
    given, unnamed = _decoded("versions", options.versions), output_format(accept)
    if not isinstance(given, list) or len(given) > MAX_VERSIONS:
        message = f'a list of at most {MAX_VERSIONS} is needed: [{{"ops": [{{"name": …}}]}}, …]'
        raise InvalidParameter.of("versions", message)
    versions: list[Version] = []
    errors: list[FieldError] = []
    for number, each in enumerate(given):
        try:
            versions.append(_version(each, options, unnamed, expanded))
        except InvalidParameter as error:
            errors.extend(
                FieldError(f"versions[{number}].{e.path}".rstrip("."), e.message, e.given)
                for e in error.errors
            )
            if len(errors) >= MOST_ERRORS:  # an answer has no more, and each takes 100 µs
                break
    if errors:
        raise InvalidParameter(f"{errors[0].path}: {errors[0].message}", errors)
    return tuple(versions)


def version_of(
    chain: FilterChain,
    own: EncodingOptions,
    unnamed: OutputFormat,
    shared: EncodingOptions | None = None,
    id_: str | None = None,
) -> Version:
    """Return a version with its `own` options of the encoder, and those of the request (`shared`).

    The format is `unnamed` if no option names one; then `Version.format_for` checks the options for
    each image. Raises InvalidParameter if a format lacks one of the options, and for frames=all
    beside a filter that measures pixels.
    """
    given = own.model_dump(include=_OF_ENCODING, exclude_none=True)
    if shared is not None:
        inherited = _OF_ENCODING
        if own.format:
            format_ = named_format(own.format)
            inherited = {
                each for each in _OF_ANY_FORMAT if format_ in OPTIONS_OF.get(each, ENCODABLE)
            }
        given = shared.model_dump(include=inherited, exclude_none=True) | given
    name = given.pop("format", None)
    encoding = Encoding(**given)
    if encoding.frames == "all" and chain.measuring is not None:
        text = (
            f"{chain.filters[chain.measuring].name} cannot measure the frames of an animation; "
            "leave out frames=all, or give the numbers: crop, or resize with gravity=center"
        )
        raise InvalidParameter.of("frames", text, "all")
    if name is not None:
        unnamed = OutputFormat(named_format(name))
        encoding.check(named_format(name))
    return Version(chain, unnamed, encoding, id_)


def _version(
    given: object, shared: EncodingOptions, unnamed: OutputFormat, expanded: Expand
) -> Version:
    """Return one version; raises InvalidParameter, whose paths start at the version."""
    if not isinstance(given, Mapping):
        raise InvalidParameter.of("", 'an object is needed: {"ops": [{"name": …}]}', given)
    id_ = given.get("id")
    if id_ is not None and not (isinstance(id_, str) and len(id_) <= MAX_ID):
        raise InvalidParameter.of("id", f"a text of at most {MAX_ID} characters is needed", id_)
    asked = {name: value for name, value in given.items() if name != "id"}
    options = read(FilterOptions, expanded(asked))
    if (options.frames or shared.frames) == "all":
        message = "POST /process filters the first frame; send the animation to POST /filter"
        raise InvalidParameter.of("frames", message, "all")
    return version_of(chain_of(options), options, unnamed, shared, id_)


def _decoded(name: str, given: object) -> object:
    """Return an option that is JSON: already parsed in a JSON body, text in a query or a form."""
    if not isinstance(given, str):
        return given
    try:
        return parsed_json(given)
    except ValueError as error:
        text = f"the text is not valid JSON: {error}"
        raise InvalidParameter.of(name, text, given) from None
