"""Answer an inference request: its JSON, the tensors behind it, and its failed images."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from fastapi import Request
from fastapi.responses import Response
from numpy.typing import NDArray

from app.http.negotiation import JSON
from app.http.problems import answer, shortened
from app.intake.inference import ERROR, SCORES, InferenceModel, InferenceRequest, WantedOutput
from app.pipeline.results.outcomes import Answer
from app.pipeline.results.timings import Timings, server_timing
from app.responses.answers import MANY_LABELS, sized
from models.api.schemas import ModelRecord
from models.domain.errors import ServiceError
from models.domain.job import Labels, Vector
from models.labels import LabelSet
from models.networks.served import Model

_LENGTH = 4
"""Bytes of the length before each element of a BYTES tensor."""


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """A tensor of an answer: float32 of its shape, or texts in row-major order."""

    name: str
    shape: list[int]
    values: NDArray[np.float32] | list[str]
    binary: bool

    @property
    def datatype(self) -> str:
        """Return the protocol's name of the type."""
        return "BYTES" if isinstance(self.values, list) else "FP32"

    def data(self) -> list[float] | list[str]:
        """Return the values as JSON has them: in one list; NaN becomes null."""
        if isinstance(self.values, list):
            return self.values
        flat: list[float] = self.values.reshape(-1).tolist()
        return flat

    def raw(self) -> bytes:
        """Return the values as they stand behind the JSON: little-endian."""
        if not isinstance(self.values, list):
            return self.values.astype("<f4").tobytes()
        elements = (text.encode() for text in self.values)
        return b"".join(len(each).to_bytes(_LENGTH, "little") + each for each in elements)


def output_tensor(
    wanted: WantedOutput, answers: Sequence[Answer], width: int, labels: LabelSet
) -> OutputTensor:
    """Return an output of all answers; an image with an error has NaN, or empty texts."""
    n = len(answers)
    if wanted.name == ERROR:
        return OutputTensor(ERROR, [n], [_error_of(each) for each in answers], wanted.binary)
    if wanted.classes:
        texts = [text for each in answers for text in _classes(each, wanted, labels)]
        return OutputTensor(wanted.name, [n, wanted.classes], texts, wanted.binary)
    values = np.full((n, width), np.nan, np.float32)
    for row, each in zip(values, answers, strict=True):
        if isinstance(each.outcome, Vector):
            found = each.outcome.values
            row[:] = _softmax(found) if wanted.name == SCORES else found
    return OutputTensor(wanted.name, [n, width], values, wanted.binary)


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


HEADER = "Inference-Header-Content-Length"

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


@dataclass(frozen=True, slots=True)
class InferenceStyle:
    """The values with which the answers of an inference request are written.

    `intake` is the time that reading the request took.
    """

    model: InferenceModel
    weights: Model
    asked: InferenceRequest
    intake: Timings


async def inference_reply(
    request: Request, answers: Sequence[Answer], style: InferenceStyle
) -> Response:
    """Return all outputs, or an error if images failed and the request takes no errors of them."""
    headers = {"Server-Timing": server_timing([style.intake, *(a.stages for a in answers)])}
    if failure := failure_of(style.asked, answers):
        response = answer(failure, request.scope)
        response.headers.update(headers)
        return response
    if len(answers) * style.model.width > MANY_LABELS:
        head, tail = await asyncio.to_thread(_written, answers, style)
    else:
        head, tail = _written(answers, style)
    body, media_type = head + tail, JSON
    if any(each.binary for each in style.asked.outputs):
        media_type = _OCTETS
        headers[HEADER] = str(len(head))
    coding = request.headers.get("accept-encoding", "").strip().lower()
    if coding in _COMPRESS:
        headers |= {"Content-Encoding": coding, "Vary": "Accept-Encoding"}
        body = await asyncio.to_thread(_COMPRESS[coding], body)
    return sized([body], len(body), headers, media_type)


def _written(answers: Sequence[Answer], style: InferenceStyle) -> tuple[bytes, bytes]:
    """Return the JSON, and the tensors that stand behind it."""
    raw: list[bytes] = []
    outputs: list[dict[str, object]] = []
    for wanted in style.asked.outputs:
        tensor = output_tensor(wanted, answers, style.model.width, style.weights.labels)
        shown: dict[str, object] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
        }
        if tensor.binary:
            raw.append(tensor.raw())
            outputs.append(shown | {"parameters": {"binary_data_size": len(raw[-1])}})
        else:
            outputs.append(shown | {"data": tensor.data()})
    reply = {
        "model_name": style.model.name,
        "model_version": style.model.version,
        **({"id": style.asked.id} if style.asked.id else {}),
        "parameters": reply_parameters(answers, style.weights.record),
        "outputs": outputs,
    }
    return msgspec.json.encode(reply), b"".join(raw)


def reply_parameters(answers: Sequence[Answer], record: ModelRecord) -> dict[str, str | bool | int]:
    """Return the parameters of every answer: its weights, and the milliseconds of all stages.

    Values of parameters are texts, numbers and booleans, so the stages are JSON in a text.
    """
    stages = [each.stages.milliseconds() for each in answers]
    warning = {} if record.warning is None else {"warning": record.warning}
    return {
        "weights": record.name,
        "weights_sha256": record.sha256,
        "label_set": record.label_set,
        "preprocessing": record.preprocessing,
        "precision": str(record.precision),
        "device": record.device,
        **warning,
        "timing_ms": json.dumps(stages, separators=(",", ":")),
    }


def failure_of(asked: InferenceRequest, answers: Sequence[Answer]) -> ServiceError | None:
    """Return the error with the highest status, with a text about all failed images.

    None if no image failed, or if the request takes the errors of its images.
    """
    failed = [
        (each.item.index, each.outcome)
        for each in answers
        if isinstance(each.outcome, ServiceError)
    ]
    if asked.takes_errors or not failed:
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
