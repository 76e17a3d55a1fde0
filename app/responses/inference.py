"""Answer an inference request: its JSON, the tensors behind it, and its failed images."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from fastapi import Request
from fastapi.responses import Response
from numpy.typing import NDArray

from app.http.negotiation import JSON
from app.http.problems import answer, shortened
from app.intake.inference import (
    ERROR,
    HEADER,
    PREFIX,
    SCORES,
    InferenceModel,
    InferenceRequest,
    WantedOutput,
)
from app.pipeline.outcomes import Answer, Timings, server_timing
from app.responses.answers import MANY_LABELS, sized
from models.domain.errors import ServiceError
from models.domain.job import Labels, Vector
from models.labels import LabelSet

Values = NDArray[np.float32] | list[str]
"""The values of an output: float32 (images, width), or texts in row-major order."""


def output_of(
    wanted: WantedOutput, answers: Sequence[Answer], width: int, labels: LabelSet
) -> tuple[list[int], Values]:
    """Return the shape and the values of an output; a failed image has NaN, or empty texts."""
    n = len(answers)
    if wanted.name == ERROR:
        return [n], [_error_of(each) for each in answers]
    if wanted.classes:
        texts = [text for each in answers for text in _classes(each, wanted, labels)]
        return [n, wanted.classes], texts
    values = np.full((n, width), np.nan, np.float32)
    for row, each in zip(values, answers, strict=True):
        if isinstance(each.outcome, Vector):
            found = each.outcome.values
            row[:] = _softmax(found) if wanted.name == SCORES else found
    return [n, width], values


def raw(values: Values) -> bytes:
    """Return the values as they stand behind the JSON: little-endian, texts after their length."""
    if not isinstance(values, list):
        return values.astype("<f4").tobytes()
    elements = (text.encode() for text in values)
    return b"".join(len(each).to_bytes(PREFIX, "little") + each for each in elements)


def _error_of(answer: Answer) -> str:
    error = answer.outcome
    return f"{error.code}: {error.detail}" if isinstance(error, ServiceError) else ""


def _classes(answer: Answer, wanted: WantedOutput, labels: LabelSet) -> list[str]:
    """Return the best classes as `value:class:label`; the value is the shortest text for it."""
    found, k = answer.outcome, wanted.classes
    if isinstance(found, Vector):
        values = _softmax(found.values) if wanted.name == SCORES else found.values
        best = np.argsort(-values, kind="stable")[:k]
        found = Labels(tuple(best.tolist()), tuple(values[best].tolist()))
    if not isinstance(found, Labels):
        return [""] * k
    pairs = zip(found.scores[:k], found.class_ids[:k], strict=True)
    return [f"{np.float32(score)!s}:{n}:{labels.labels[n]}" for score, n in pairs]


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the shares of the classes, computed as the labels of a CPU are."""
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


MOST_NAMED = 10
"""Failed images that the error of a request names."""

LONGEST_REASONS = 550
"""Characters of the reasons of all of them: with the rest of the text fewer than an error has."""

_OCTETS = "application/octet-stream"

_LEVEL = 1
"""The level of compression: floats hardly become smaller by more work."""

_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, _LEVEL),
    "deflate": lambda data: zlib.compress(data, _LEVEL),
}
"""Codings that a client gets if its Accept-Encoding names this coding and nothing else.

Libraries ask for every coding that they know by default, and tensors of floats gain little.
"""


async def inference_reply(
    request: Request,
    answers: Sequence[Answer],
    model: InferenceModel,
    asked: InferenceRequest,
    intake: Timings,
) -> Response:
    """Return all outputs, or an error if images failed and the request takes no errors of them.

    `intake` is the time that reading the request took.
    """
    headers = {"Server-Timing": server_timing([intake, *(a.stages for a in answers)])}
    if failure := failure_of(asked, answers):
        response = answer(failure, request.scope)
        response.headers.update(headers)
        return response
    if len(answers) * model.width > MANY_LABELS:
        head, tail = await asyncio.to_thread(_written, answers, model, asked)
    else:
        head, tail = _written(answers, model, asked)
    body, media_type = head + tail, JSON
    if any(each.binary for each in asked.outputs):
        media_type = _OCTETS
        headers[HEADER] = str(len(head))
    coding = request.headers.get("accept-encoding", "").strip().lower()
    if coding in _COMPRESS:
        headers |= {"Content-Encoding": coding, "Vary": "Accept-Encoding"}
        body = await asyncio.to_thread(_COMPRESS[coding], body)
    return sized([body], len(body), headers, media_type)


def _written(
    answers: Sequence[Answer], model: InferenceModel, asked: InferenceRequest
) -> tuple[bytes, bytes]:
    """Return the JSON, and the tensors that stand behind it.

    Values of parameters are texts, numbers and booleans, so the stages are JSON in a text.
    """
    weights = model.served.model
    assert weights is not None
    behind: list[bytes] = []
    outputs: list[dict[str, object]] = []
    for wanted in asked.outputs:
        shape, values = output_of(wanted, answers, model.width, weights.labels)
        kind = "BYTES" if isinstance(values, list) else "FP32"
        shown: dict[str, object] = {"name": wanted.name, "datatype": kind, "shape": shape}
        if wanted.binary:
            behind.append(raw(values))
            shown["parameters"] = {"binary_data_size": len(behind[-1])}
        else:  # NaN becomes null
            shown["data"] = values if isinstance(values, list) else values.reshape(-1).tolist()
        outputs.append(shown)
    record, stages = weights.record, [each.stages.milliseconds() for each in answers]
    reply = {
        "model_name": model.name,
        "model_version": model.version,
        **({"id": asked.document.id} if asked.document.id else {}),
        "parameters": {
            "weights": record.name,
            "weights_sha256": record.sha256,
            "label_set": record.label_set,
            "preprocessing": record.preprocessing,
            "precision": str(record.precision),
            "device": record.device,
            **({} if record.warning is None else {"warning": record.warning}),
            "timing_ms": json.dumps(stages, separators=(",", ":")),
        },
        "outputs": outputs,
    }
    return msgspec.json.encode(reply), b"".join(behind)


def failure_of(asked: InferenceRequest, answers: Sequence[Answer]) -> ServiceError | None:
    """Return the error with the highest status, with a text about all failed images.

    None if no image failed, or if the request names the output ERROR.
    """
    failed = [
        (each.item.index, each.outcome)
        for each in answers
        if isinstance(each.outcome, ServiceError)
    ]
    if not failed or any(each.name == ERROR for each in asked.document.outputs):
        return None
    each = LONGEST_REASONS // min(len(failed), MOST_NAMED)
    reasons = "; ".join(
        f"{index}: {error.code}, {shortened(error.detail, each)}"
        for index, error in failed[:MOST_NAMED]
    )
    more = f"; and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
    text = (
        f"{len(failed)} of {len(answers)} images failed, by index: {reasons}{more}. "
        "Ask for the output ERROR to get the results of the others"
    )
    worst = max((error for _, error in failed), key=lambda error: error.status)
    told = type(worst).__new__(type(worst))  # some errors have constructors of their own
    vars(told).update(vars(worst), detail=text)
    return told
