"""What is taken out of a message, and what is refused, before protobuf sees it."""

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from app.grpc_service.messages import message_class
from app.grpc_service.wire import MOST_BESIDE, MOST_FIELDS, without_tensors
from models.domain.errors import MalformedRequest

Request = message_class("inference.ModelInferRequest")


@given(st.lists(st.binary(max_size=300), max_size=5), st.text(max_size=20))
@limits(max_examples=40)
def test_raw_tensors_are_taken_out_and_all_else_is_kept(raw: list[bytes], name: str) -> None:
    asked = Request(model_name=name, id="7", raw_input_contents=raw)
    asked.inputs.add(name="IMAGE", shape=[-1, 5]).contents.fp32_contents.extend([1.5, 2.5])
    asked.parameters["a"].double_param = 0.5
    kept, tensors = without_tensors(asked.SerializeToString())
    assert [bytes(each) for each in tensors] == raw
    asked.ClearField("raw_input_contents")
    assert Request.FromString(kept) == asked


@given(st.binary(max_size=200))
@limits(max_examples=200)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        kept, raw = without_tensors(body)
    except MalformedRequest:
        return
    assert len(kept) + sum(map(len, raw)) <= len(body)


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
        without_tensors(body)
