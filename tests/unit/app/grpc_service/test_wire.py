"""What is taken out of a message, and what is refused, before protobuf sees it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from app.grpc_service.messages import message_class
from app.grpc_service.wire import BYTES, FP32, MOST_BESIDE, MOST_FIELDS, UINT, taken_apart
from models.domain.errors import MalformedRequest

Request = message_class("inference.ModelInferRequest")


@given(st.lists(st.binary(max_size=300), max_size=5), st.text(max_size=20))
@limits(max_examples=40)
def test_raw_tensors_are_taken_out_and_all_else_is_kept(raw: list[bytes], name: str) -> None:
    asked = Request(model_name=name, id="7", raw_input_contents=raw)
    asked.inputs.add(name="IMAGE", datatype="x" * len(name), shape=[-1, 5])
    asked.inputs.add(name="y" * 200)
    asked.parameters["a"].double_param = 0.5
    found = taken_apart(asked.SerializeToString())
    assert [bytes(each) for each in found.raw] == raw
    assert found.contents is None
    asked.ClearField("raw_input_contents")
    assert Request.FromString(found.beside) == asked


def test_the_data_of_an_input_are_taken_out_and_not_parsed() -> None:
    asked = Request()
    contents = asked.inputs.add(name="IMAGE", shape=[-1, 5]).contents
    contents.fp32_contents.extend([1.5, 2.5])
    contents.uint_contents.extend([1, 255])
    contents.bytes_contents.extend([b"one", b""])
    contents.uint64_contents.extend([7] * 100_000)
    body = asked.SerializeToString() + b"\x2a\x04\x2a\x02\x20\x05"  # one number in its own field
    found = taken_apart(body)
    assert found.contents is not None
    assert {number: [bytes(each) for each in data] for number, data in found.contents.items()} == {
        FP32: [np.array([1.5, 2.5], np.float32).tobytes()],
        UINT: [b"\x01\xff\x01", b"\x05"],
        BYTES: [b"one", b""],
    }
    asked.inputs[0].ClearField("contents")
    asked.inputs.add()
    assert Request.FromString(found.beside) == asked
    assert taken_apart(Request(inputs=[{"contents": {}}]).SerializeToString()).contents == {}


@given(st.binary(max_size=200))
@limits(max_examples=200)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        found = taken_apart(body)
    except MalformedRequest:
        return
    assert len(found.beside) + sum(map(len, found.raw)) <= len(body)


@pytest.mark.parametrize(
    "body",
    [
        b"\x2a\x00" * (MOST_FIELDS + 1),  # empty inputs
        Request(raw_input_contents=[b""] * (MOST_FIELDS + 1)).SerializeToString(),
        Request(model_name="x" * (MOST_BESIDE + 1)).SerializeToString(),
        Request(inputs=[{"shape": [1] * (MOST_BESIDE + 1)}]).SerializeToString(),
        Request(
            inputs=[{"contents": {"bytes_contents": [b""] * (MOST_FIELDS + 1)}}]
        ).SerializeToString(),
        Request(inputs=[{"shape": [1] * 60}] * 1200).SerializeToString(),
        b"\x3a\x05ab",  # a tensor that ends after the message
        b"\xff" * 11,
        b"\x0b",  # a group
        b"\x08",
    ],
    ids=range(10),
)
def test_what_would_become_many_objects_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        taken_apart(body)
