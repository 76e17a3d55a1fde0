"""Answers of inference requests: tensors, and the error about failed images."""

import gzip
import json
import zlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fastapi import Request, Response

from app.intake.inference import HEADER, Document, GivenOutput, WantedOutput
from app.intake.item import Item
from app.pipeline.outcomes import Answer, Timings
from app.responses.inference import inference_reply, output_of, raw
from models.domain.errors import DeadlineExceeded, Overloaded, ServiceError, Undecodable
from models.domain.job import Labels, Vector
from models.labels import LabelSet
from tests.fakes import fake_network

SERVED = fake_network("cat", "dog", "é", sha256="01", warning="beware")
LABELS = LabelSet("fake", ("cat", "dog", "é"), (None, None, None))
BAD = Undecodable("the file ends early")


def answer(index: int, outcome: Labels | Vector | ServiceError) -> Answer:
    return Answer(Item(index, BAD), outcome, Timings())


def vector(*values: float) -> Vector:
    return Vector(np.array(values, np.float32))


ANSWERS = [answer(0, vector(1, 3, 2)), answer(1, BAD), answer(2, vector(0, 0, 0))]


def request_of(*outputs: WantedOutput, takes_errors: bool = True) -> Any:
    """Return a request of the protocol for these outputs."""
    named = [GivenOutput("ERROR")] if takes_errors else []
    return SimpleNamespace(outputs=outputs, document=Document([], named, "id"))


async def replied(answers: list[Answer], asked: Any, accepts: str = "") -> Response:
    """Return the response to a request with this Accept-Encoding header."""
    headers = [(b"accept-encoding", accepts.encode())]
    request = Request({"type": "http", "path": "/v2/models/m/infer", "headers": headers})
    model: Any = SimpleNamespace(name="m", version="v", width=3, served=SERVED)
    return await inference_reply(request, answers, model, asked, Timings())


def test_values_are_rows_and_a_failed_image_has_none() -> None:
    shape, values = output_of(WantedOutput("LOGITS", binary=True), ANSWERS, 3, LABELS)
    assert shape == [3, 3]
    rows = np.frombuffer(raw(values), "<f4").reshape(3, 3)
    assert rows[0].tolist() == [1, 3, 2]
    assert np.isnan(rows[1]).all()
    _, shares = output_of(WantedOutput("SCORES", binary=True), ANSWERS, 3, LABELS)
    assert isinstance(shares, np.ndarray)
    assert shares[2].tolist() == pytest.approx([1 / 3] * 3)


def test_classes_are_texts_of_value_class_and_label() -> None:
    wanted = WantedOutput("LOGITS", binary=False, classes=2)
    _, values = output_of(wanted, ANSWERS, 3, LABELS)
    assert values == ["3.0:1:dog", "2.0:2:é", "", "", "0.0:0:cat", "0.0:1:dog"]
    labels = [answer(0, Labels((2, 0, 1), (0.5, 0.25, 0.25)))]
    assert output_of(wanted, labels, 3, LABELS) == ([1, 2], ["0.5:2:é", "0.25:0:cat"])


async def test_an_answer_names_its_weights_and_times() -> None:
    outputs = (WantedOutput("LOGITS", binary=False), WantedOutput("ERROR", binary=True))
    response = await replied(ANSWERS, request_of(*outputs))
    length = int(response.headers[HEADER])
    reply = json.loads(bytes(response.body)[:length])
    assert (reply["model_name"], reply["model_version"], reply["id"]) == ("m", "v", "id")
    assert reply["parameters"]["weights_sha256"] == "01"
    assert reply["parameters"]["warning"] == "beware"
    assert json.loads(reply["parameters"]["timing_ms"]) == [{}, {}, {}]
    logits, errors = reply["outputs"]
    assert logits["data"] == [1, 3, 2, None, None, None, 0, 0, 0]
    raw = bytes(response.body)[length:]
    assert errors["parameters"] == {"binary_data_size": len(raw)}
    text = b"undecodable: the file ends early"
    assert raw == b"\0" * 4 + len(text).to_bytes(4, "little") + text + b"\0" * 4


@pytest.mark.parametrize(
    ("coding", "unpacked"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)]
)
async def test_an_answer_is_compressed_if_one_coding_is_asked_for(
    coding: str, unpacked: object
) -> None:
    assert callable(unpacked)
    wanted = request_of(WantedOutput("LOGITS", binary=True))
    plain = await replied(ANSWERS, wanted)
    packed = await replied(ANSWERS, wanted, coding)
    assert packed.headers["Content-Encoding"] == coding
    assert unpacked(packed.body) == plain.body
    several = await replied(ANSWERS, wanted, "gzip, deflate, br")
    assert "Content-Encoding" not in several.headers


async def test_a_request_that_takes_no_errors_fails_with_the_highest_status() -> None:
    wanted = request_of(WantedOutput("LOGITS", binary=True), takes_errors=False)
    failed = [answer(0, BAD), answer(1, DeadlineExceeded("late")), answer(2, vector(1, 1, 1))]
    response = await replied(failed, wanted)
    assert response.status_code == 504
    assert b"2 of 3 images failed, by index: 0: undecodable" in bytes(response.body)
    response = await replied([answer(0, Overloaded("busy", retry_after=3.2))], wanted)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "4")
    response = await replied([answer(n, BAD) for n in range(60)], wanted)
    assert b"and 50 more" in bytes(response.body)
