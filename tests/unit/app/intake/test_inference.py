"""What is read of inference requests, and the errors of those that lie about shapes or sizes."""

import asyncio
import base64
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from app.admission import Admission, Permit
from app.admission.permits import Limits
from app.intake import inference
from app.intake.inference import (
    HEADER,
    InferenceModel,
    InferenceRequest,
    collect,
    model_named,
    numbers,
)
from app.intake.spool import Blob
from app.intake.wanted import ClassifyTensors
from models.domain.errors import MalformedRequest, NotFound, ServiceError, TooLarge, TooManyPixels
from models.settings import Settings
from tests.asgi import body_of, cut
from tests.fakes import fake_network
from workers.operations import Classify, FunctionToApply, NetworkOutput

SERVED = fake_network("a", "b", sha256="0123456789abcdef")
MODEL = InferenceModel(SERVED)
SETTINGS = Settings(max_images_per_request=4, max_image_bytes=1000, max_pixels=10_000)


def permit() -> Permit:
    return Admission(Limits.from_settings(SETTINGS)).enter()


def read(
    body: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    model: InferenceModel = MODEL,
    chunk: int = 1 << 16,
) -> InferenceRequest:
    """Read a request whose body comes in chunks."""
    asked = request(body, body_of(*cut(body, chunk)), headers)
    return asyncio.run(collect(asked, permit(), SETTINGS, model))


def request(body: bytes, receive: Any, headers: Mapping[str, str] | None = None) -> Request:
    sent = {name.lower(): value for name, value in (headers or {}).items()}
    sent.setdefault("content-length", str(len(body)))
    named = [
        (name.encode(), each.encode()) for name, value in sent.items() for each in value.split("\n")
    ]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": named, "query_string": b""}
    return Request(scope, receive)


def document(given_: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": [given_], **more}).encode()


def binary(
    name: str, datatype: str, shape: list[int], raw: bytes, size: int | None = None, **more: Any
) -> tuple[bytes, str]:
    """Return a body with a tensor behind its JSON, and the length of that."""
    parameters = {"binary_data_size": len(raw) if size is None else size}
    given_ = {"name": name, "datatype": datatype, "shape": shape, "parameters": parameters}
    head = document(given_, **more)
    return head + raw, str(len(head))


def contents(asked: InferenceRequest) -> list[bytes]:
    return [item.content.read() for item in asked.items if isinstance(item.content, Blob)]


def of_binary(*given_: Any, chunk: int = 1 << 16, **more: Any) -> InferenceRequest:
    body, length = binary(*given_, **more)
    return read(body, {HEADER: length}, chunk=chunk)


def elements(*files: bytes) -> bytes:
    return b"".join(len(each).to_bytes(4, "little") + each for each in files)


@pytest.mark.parametrize("shape", [[2], [2, 1]])
def test_files_behind_the_json_are_cut_out(shape: list[int]) -> None:
    asked = of_binary("IMAGE", "BYTES", shape, elements(b"one", b"three"), chunk=3)
    assert contents(asked) == [b"one", b"three"]
    assert asked.wanted == Classify(1, output=NetworkOutput.LOGITS)
    assert [each.name for each in asked.outputs] == ["SCORES", "LOGITS", "ERROR"]


def test_samples_and_inputs_are_cut_into_images() -> None:
    samples = np.arange(2 * 3 * 5 * 3, dtype=np.uint8)
    asked = of_binary("PIXELS", "UINT8", [2, 3, 5, 3], samples.tobytes(), chunk=7)
    assert contents(asked) == [samples[:45].tobytes(), samples[45:].tobytes()]
    assert isinstance(asked.wanted, ClassifyTensors)
    assert (asked.wanted.height, asked.wanted.width) == (3, 5)
    assert not asked.wanted.operation.preprocessed
    values = np.random.default_rng(0).normal(0, 1, (1, 3, 224, 224)).astype(np.float32)
    asked = of_binary("INPUT", "FP32", [1, 3, 224, 224], values.tobytes())
    assert contents(asked) == [values.tobytes()]
    assert isinstance(asked.wanted, ClassifyTensors)
    assert asked.wanted.operation.preprocessed


def test_tensors_in_json_are_those_behind_it() -> None:
    samples = np.arange(45, dtype=np.uint8).reshape(1, 3, 5, 3)
    given_ = {"name": "PIXELS", "datatype": "UINT8", "shape": [1, 3, 5, 3]}
    for data in (samples.tolist(), samples.reshape(-1).tolist()):
        assert contents(read(document(given_ | {"data": data}))) == [samples.tobytes()]
    files = [base64.b64encode(b"one").decode(), "data:image/png;base64,dHdv", "no base64!"]
    asked = read(document({"name": "IMAGE", "datatype": "BYTES", "shape": [3], "data": files}))
    assert contents(asked) == [b"one", b"two"]
    assert isinstance(asked.items[2].content, MalformedRequest)
    assert not bytes(asked.input.data), "the request keeps its whole text in memory"


def test_a_large_file_is_an_error_of_its_own_also_if_escapes_hide_its_size() -> None:
    """An escaped `/` stands for one digit, so the size is known only after decoding."""
    asked = of_binary("IMAGE", "BYTES", [3], elements(b"a", b"b" * 1001, b"c"))
    assert contents(asked) == [b"a", b"c"]
    assert isinstance(asked.items[1].content, TooLarge)
    files = [base64.b64encode(b"\xff" * 1002).decode(), base64.b64encode(b"small").decode()]
    body = document({"name": "IMAGE", "datatype": "BYTES", "shape": [2], "data": files})
    asked = read(body.replace(b"/", b"\\/"))
    assert contents(asked) == [b"small"]
    assert isinstance(asked.items[0].content, TooLarge)


IMAGE = {"name": "IMAGE", "datatype": "BYTES", "shape": [1], "data": [""]}
PIXELS = {"name": "PIXELS", "datatype": "UINT8", "shape": [1, 1, 1, 3], "data": [1, 2, 3]}


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        (PIXELS | {"shape": [1, 1, 1]}, "has the shape"),
        (PIXELS | {"shape": [1, 1, 1, 4]}, "has the shape"),
        (PIXELS | {"shape": [-1, 1, 1, 3]}, "`int` >= 0"),
        (PIXELS | {"shape": [0, 1, 1, 3]}, "begins with 0"),
        (PIXELS | {"shape": [1, 0, 1, 3]}, "no pixels"),
        (PIXELS | {"shape": [1, 1, 2, 3]}, "fewer"),
        (PIXELS | {"data": [1, 2, 3, 4]}, "more values"),
        (PIXELS | {"data": [1, 2]}, "fewer"),
        (PIXELS | {"data": [1, 2, 300]}, "0 to 255"),
        (PIXELS | {"data": ["a"]}, "0 to 255"),
        (PIXELS | {"data": [[1, 2, 3]]}, "lists"),
        (PIXELS | {"data": "text"}, "needs `data`"),
        (PIXELS | {"datatype": "FP32"}, "datatype"),
        (PIXELS | {"name": "pixels"}, "no input"),
        (PIXELS | {"shape": [1.5, 1, 1, 3]}, "Expected `int`"),
        (PIXELS | {"shape": "1"}, "Expected `array`"),
        (PIXELS | {"parameters": {"shared_memory_region": "x"}}, "shared memory"),
        (PIXELS | {"parameters": {"binary_data_size": 3}}, HEADER),
        (PIXELS | {"parameters": [1]}, "Expected `object`"),
        (PIXELS | {"parameters": {"binary_data_size": 10**400}}, "`int` <= 9223372036854775807"),
        (PIXELS | {"shape": [1, 1 << 63, 1, 3]}, "`int` <= 9223372036854775807"),
        ({"name": "IMAGE", "datatype": "BYTES", "shape": [1]}, "needs `data`"),
        (IMAGE | {"shape": [2]}, "strings"),
        (IMAGE | {"data": [1]}, "no array of strings"),
    ],
)
def test_inputs_that_lie_are_400(given_: dict[str, Any], words: str) -> None:
    with pytest.raises(MalformedRequest, match=words):
        read(document(given_))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"outputs": [{"name": "scores"}]}, "no output"),
        ({"outputs": [{"name": "SCORES"}, {"name": "SCORES"}]}, "more than once"),
        ({"outputs": [{"name": "ERROR", "parameters": {"classification": 1}}]}, "no classes"),
        ({"outputs": [{"name": "SCORES", "parameters": {"classification": -1}}]}, "`int` >= 0"),
        ({"outputs": [{"name": "SCORES", "parameters": {"binary_data": 1}}]}, "`bool | null`"),
        ({"parameters": {"binary_data_output": "yes"}}, "`bool`"),
        ({"parameters": {"timeout": -1}}, "`int` >= 0"),
        ({"parameters": {"timeout": True}}, "Expected `int`"),
        ({"parameters": {"sequence_id": 4}}, "sequences"),
        ({"parameters": {"priority": 1}}, "priorities"),
        ({"id": 5}, "Expected `str`"),
        ({"id": "x" * 1001}, "length <= 1000"),
    ],
)
def test_other_parts_that_are_wrong_are_400(more: dict[str, Any], words: str) -> None:
    with pytest.raises(MalformedRequest, match=words):
        read(document(IMAGE, **more))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"inputs": []}',
        b'{"inputs": 1}',
        b"\xff\xfe",
        b'{"inputs": [{"name": "\xff"}]}',
        document(IMAGE).replace(b'""', b'"\xff"'),
        document(IMAGE).replace(b'""', b"[" * 700 + b'""' + b"]" * 700),
        json.dumps({"inputs": [IMAGE, PIXELS]}).encode(),
        b'{"inputs": [], "inputs": []}',
        b"null",
    ],
)
def test_bodies_that_are_no_request_are_400(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read(body)


def test_limits_have_their_own_status() -> None:
    with pytest.raises(TooLarge, match="MAX_IMAGES_PER_REQUEST"):
        read(document(IMAGE | {"shape": [5]}))
    with pytest.raises(TooManyPixels):
        read(document(PIXELS | {"shape": [1, 101, 100, 3]}))
    with pytest.raises(TooManyPixels):
        read(document(PIXELS | {"shape": [1, 2**62, 2**62, 3]}))
    with pytest.raises(TooLarge, match="strings, brackets"):
        read(b'{"a":' * 50_000)


@pytest.mark.parametrize(
    ("shape", "raw", "size", "words"),
    [
        ([1], elements(b"abc")[:-1], None, "beyond"),
        ([1], elements(b"abc") + b"x", None, "no element"),
        ([1], b"\xff\xff\xff\xffabc", None, "beyond"),
        ([2], elements(b"abc"), 8, "beyond|make"),
        ([2], elements(b"abc"), 7, "beyond"),
        ([1], elements(b"abc"), 1 << 62, "make"),
        ([1], elements(b"abc"), 6, "make"),
        ([1], elements(b"abc"), -1, "`int` >= 0"),
    ],
)
def test_sizes_behind_the_json_that_do_not_add_up_are_400(
    shape: list[int], raw: bytes, size: int | None, words: str
) -> None:
    with pytest.raises(MalformedRequest, match=words):
        of_binary("IMAGE", "BYTES", shape, raw, size)


@pytest.mark.parametrize("length", ["0", "-1", "x", "٣", "99999999", "1" * 30, "1.0", " "])
def test_lengths_of_the_json_that_are_wrong_are_400(length: str) -> None:
    body, _ = binary("IMAGE", "BYTES", [1], elements(b"abc"))
    with pytest.raises(MalformedRequest):
        read(body, {HEADER: length.encode().decode("latin-1")})


def test_headers_that_are_sent_twice_are_not_read_as_their_first() -> None:
    body, length = binary("IMAGE", "BYTES", [1], elements(b"abc"))
    with pytest.raises(MalformedRequest, match="number of bytes of the JSON"):
        read(body, {HEADER: f"{length}\n{length}"})


def test_a_tensor_of_another_size_than_its_shape_is_400() -> None:
    with pytest.raises(MalformedRequest, match="its shape has 602112"):
        of_binary("INPUT", "FP32", [1, 3, 224, 224], b"\0" * 100)
    body = document(IMAGE | {"parameters": {"binary_data_size": 5}})
    with pytest.raises(MalformedRequest, match="inside"):
        read(body + elements(b"a"), {HEADER: str(len(body))})


def test_only_what_the_outputs_need_is_wanted() -> None:
    def wanted(*outputs: dict[str, Any]) -> Any:
        return read(document(IMAGE, outputs=list(outputs))).wanted

    classes = {"name": "SCORES", "parameters": {"classification": 9}}
    assert wanted(classes) == Classify(2)
    assert wanted({"name": "ERROR"}) == Classify(1)
    logits = classes | {"name": "LOGITS"}
    assert wanted(logits) == Classify(2, FunctionToApply.NONE)
    assert wanted(classes, logits) == Classify(1, output=NetworkOutput.LOGITS)
    embedding = InferenceModel(SERVED, embeds=True)
    found = read(document(IMAGE), model=embedding)
    assert found.wanted == Classify(1, output=NetworkOutput.EMBEDDING)
    assert [each.name for each in found.outputs] == ["EMBEDDING", "ERROR"]


def test_the_timeout_is_in_microseconds() -> None:
    assert read(document(IMAGE, parameters={"timeout": 1_500_000})).timeout == 1.5
    assert read(document(IMAGE)).timeout == math.inf
    most = (1 << 63) - 1
    assert read(document(IMAGE, parameters={"timeout": most})).timeout == pytest.approx(most / 1e6)


def test_models_and_versions_are_found_by_name() -> None:
    for version in (None, "1", "0123456789ab"):
        assert model_named([SERVED], "resnet18", version) == MODEL
    assert model_named([SERVED], "resnet18_embedding", None).embeds
    for name, version in (("resnet", None), ("resnet18", "2"), ("", None)):
        with pytest.raises(NotFound):
            model_named([SERVED], name, version)


def test_long_arrays_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "PIECE", 50)
    values = np.random.default_rng(1).normal(0, 1, (1, 3, 40, 5)).astype(np.float32)
    data = json.dumps(values.tolist()).encode()
    wanted = ClassifyTensors(Classify(1, preprocessed=True), 40, 5)
    (found,) = numbers(data, values.shape, wanted)
    assert isinstance(found, Blob)
    assert found.read() == values.tobytes()
    (found,) = numbers(b"[" + b"1e39," * 599 + b"1]", values.shape, wanted)
    assert isinstance(found, Blob)
    assert np.isinf(np.frombuffer(found.read(), np.float32)[:-1]).all()


@pytest.mark.parametrize(
    "data",
    ["[1 2,3]", "[1,,2,3]", "[1,2,3,]", "[1,2,3]]", "[[1,2],[3]]", "[[],[1,2,3],[],[],[],[]]"]
    + [f"[1,2,{x}]" for x in ("01", "1.5.2", "true", "null", '"2"', "NaN", "1.5", "256", "-1")],
)
def test_texts_that_are_no_array_are_refused(data: str) -> None:
    body = document(PIXELS | {"data": 0})
    with pytest.raises(MalformedRequest):
        read(body.replace(b'"data": 0', f'"data": {data}'.encode()))


@given(st.binary(max_size=200), st.one_of(st.none(), st.integers(0, 300)))
@limits(max_examples=60)
def test_no_bytes_give_another_error(body: bytes, length: int | None) -> None:
    headers = {} if length is None else {HEADER: str(length)}
    with pytest.raises(ServiceError) as caught:
        read(body, headers, chunk=50)
    assert caught.value.status in (400, 413)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.sampled_from(["IMAGE", "PIXELS", "INPUT"]) | JSON,
            "shape": st.lists(st.integers(-2, 2**65), max_size=5) | JSON,
            "datatype": st.sampled_from(["BYTES", "UINT8", "FP32"]) | JSON,
            "data": st.lists(st.integers(-1, 300) | st.text(max_size=3), max_size=4) | JSON,
            "parameters": st.dictionaries(st.sampled_from(["binary_data_size", "x"]), JSON) | JSON,
        },
    )
)
@limits(max_examples=150)
def test_no_input_gives_an_error_of_the_server(given_: dict[str, Any]) -> None:
    status = 200
    try:
        read(document(given_))
    except ServiceError as error:
        status = error.status
    assert status in (200, 400, 413, 422)
