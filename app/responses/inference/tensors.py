"""Make the output tensors of the answers: one row for each image, in the order of the request."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.intake.inference.document import WantedOutput
from app.intake.inference.models import ERROR, SCORES
from app.pipeline.results.outcomes import Answer
from models.domain.errors import ServiceError
from models.domain.job import Labels, Vector
from models.labels import LabelSet

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
        """Return the values as JSON has them: in one list; what is no number becomes null."""
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
