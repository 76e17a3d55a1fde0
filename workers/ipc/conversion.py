"""Convert domain objects to IPC frames and back: operations, sources, traces, errors."""

import functools
from typing import Any

import numpy as np

from models.domain import errors
from models.domain.errors import FieldError, InternalError, ServiceError
from models.domain.image import Image, Jpeg, NetworkInput, Pixels, Source, Subsampling
from models.domain.job import Operation, ReleaseReason, Trace
from workers.filters.registry import parse_chain
from workers.ipc.frames import EncodedError, EncodedJpeg, Shape, Times
from workers.operations import (
    Classify,
    DeviceJpeg,
    FilterChain,
    FunctionToApply,
    NetworkOutput,
)

FLOAT = 4
"""Bytes of a float32."""

_SUBSAMPLINGS = {each.value: each for each in Subsampling}
_REASONS = {each.value: each for each in ReleaseReason}

_ERRORS = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ServiceError) and "__init__" not in vars(kind)
} | {ServiceError.code: InternalError}


_PLAIN = (str, int, float, type(None))


def encode_operation(operation: Operation) -> object:
    """Return an operation as values that MessagePack can carry; it writes a StrEnum as its text."""
    if isinstance(operation, FilterChain):
        jpeg = operation.jpeg
        encoded = None if jpeg is None else (jpeg.quality, jpeg.subsampling)
        return [encoded, *(each.model_dump() for each in operation.filters)]
    assert isinstance(operation, Classify)
    return {
        "top_k": operation.top_k,
        "function": operation.function_to_apply,
        "network": operation.network,
        "output": operation.output,
        "preprocessed": operation.preprocessed,
    }


def decode_operation(encoded: Any) -> Operation:
    """Reverse `encode_operation`."""
    if isinstance(encoded, list):
        jpeg = (
            None if encoded[0] is None else DeviceJpeg(encoded[0][0], _SUBSAMPLINGS[encoded[0][1]])
        )
        return FilterChain(parse_chain(encoded[1:]), jpeg)
    asked = (encoded[name] for name in ("top_k", "function", "network", "output"))
    # Front ends of a release before there were inputs do not send it.
    return _classify(*asked, encoded.get("preprocessed", False))


@functools.lru_cache(1024)
def _classify(top_k: int, function: str, network: str, output: str, preprocessed: bool) -> Classify:
    """Return an operation, made once for equal arguments, because every image carries one."""
    applied, wanted = FunctionToApply(function), NetworkOutput(output)
    return Classify(top_k, applied, network, wanted, preprocessed)


def content_of(source: Source) -> Pixels:
    """Return what a slot carries, uint8: pixels, or the bytes of a file or of values."""
    return source.pixels if isinstance(source, Image) else source.data


def encode_source(source: Source) -> tuple[Shape, EncodedJpeg | None]:
    """Return shape and JPEG header of the content of a slot, as `Submit` and `Done` carry them.

    The shape of a network's input counts bytes: (3, height, 4 · width).
    """
    if isinstance(source, Image):
        return (source.height, source.width, source.channels), None
    if isinstance(source, NetworkInput):
        return (3, source.height, FLOAT * source.width), None
    encoded = (source.height, source.width, source.orientation, source.subsampling)
    return (len(source.data), 1, 1), encoded


def decode_input(lying: Pixels, jpeg: EncodedJpeg | None, operation: Operation) -> Source:
    """Reverse `encode_source` for the input of an operation, which says what it is."""
    if isinstance(operation, Classify) and operation.preprocessed:
        return NetworkInput(lying.view(np.float32))
    return decode_source(lying, jpeg)


def decode_source(lying: Pixels, jpeg: EncodedJpeg | None) -> Image | Jpeg:
    """Reverse `encode_source` for pixels and JPEGs."""
    if jpeg is None:
        return Image(lying)
    height, width, orientation, subsampling = jpeg
    return Jpeg(lying.reshape(-1), height, width, orientation, _SUBSAMPLINGS[subsampling])


def encode_trace(trace: Trace) -> Times:
    """Return the times of a trace in a fixed order."""
    times = (trace.queue, trace.upload, trace.decode, trace.compute, trace.download)
    sizes = (trace.batch_size, trace.max_batch_size, trace.reason.value)
    return (*times, *sizes, trace.launched_at, trace.batch_id)


def decode_trace(encoded: Times) -> Trace:
    """Reverse `encode_trace`."""
    return Trace(*encoded[:7], _REASONS[encoded[7]], *encoded[8:])


def encode_error(error: ServiceError) -> EncodedError:
    """Return an error without its traceback; given values are kept, or replaced by their text."""
    fields = [
        (e.path, e.message, e.given if isinstance(e.given, _PLAIN) else repr(e.given))
        for e in error.errors
    ]
    return error.code, error.detail, fields


def decode_error(encoded: EncodedError) -> ServiceError:
    """Reverse `encode_error`; an unknown code becomes an InternalError."""
    code, detail, fields = encoded
    return _ERRORS.get(code, InternalError)(detail, [FieldError(*field) for field in fields])
