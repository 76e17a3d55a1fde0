"""Jobs and outcomes survive the way to a replica and back; times are relative to each clock."""

import numpy as np
import pytest

from models.domain.deadline import Deadline
from models.domain.errors import FieldError, InvalidParameter
from models.domain.image import Image, Jpeg, NetworkInput, Subsampling
from models.domain.job import (
    Completed,
    Failed,
    Job,
    Labels,
    Lane,
    ReleaseReason,
    Result,
    Trace,
    Vector,
)
from tests.fakes import FakeOperation
from workers.cluster.messages import (
    arrays_of,
    decode_answer,
    decode_task,
    encode_answer,
    encode_task,
)
from workers.operations import Classify

OPERATION = FakeOperation("a")
FILE = Jpeg(np.arange(9, dtype=np.uint8), 30, 20, 6, Subsampling.S420)
PIXELS = Image(np.arange(24, dtype=np.uint8).reshape(2, 4, 3))


def trace(launched_at: float) -> Trace:
    times = (0.1, 0.2, 0.3, 0.4, 0.5)
    return Trace(*times, 3, 8, ReleaseReason.FULL, launched_at, "b")


def test_a_deadline_crosses_as_the_time_that_is_left() -> None:
    job = Job(OPERATION, PIXELS, Deadline(107.0), Lane.BULK)
    task, content = encode_task(3, job, "a", 100.0, alone=True)
    found = decode_task(task, content, OPERATION, 5000.0)
    assert task.alone
    assert found.deadline == Deadline(5007.0)
    assert (found.lane, found.owned) == (Lane.BULK, False)


def test_the_input_of_a_network_crosses_as_float32() -> None:
    values = np.random.default_rng(0).normal(0, 1, (3, 4, 5)).astype(np.float32)
    operation = Classify(preprocessed=True)
    task, content = encode_task(3, Job(operation, NetworkInput(values)), "a", 0.0, alone=False)
    found = decode_task(task, content, operation, 0.0).image
    assert isinstance(found, NetworkInput)
    assert np.array_equal(found.values, values)


@pytest.mark.parametrize("source", [FILE, PIXELS])
def test_an_image_crosses_as_it_is(source: Image | Jpeg) -> None:
    task, content = encode_task(3, Job(OPERATION, source), "a", 0.0, alone=False)
    found = decode_task(task, content, OPERATION, 0.0).image
    if isinstance(source, Jpeg):
        assert isinstance(found, Jpeg)
        assert found.data.tobytes() == source.data.tobytes()
        assert (found.height, found.width, found.orientation) == (30, 20, 6)
    else:
        assert isinstance(found, Image)
        assert np.array_equal(found.pixels, source.pixels)


@pytest.mark.parametrize(
    "result", [Labels((3, 1), (0.5, 0.25)), Vector(np.array([1, 2], np.float32)), FILE, PIXELS]
)
def test_a_result_crosses_with_its_trace(result: Result) -> None:
    answer, arrays = encode_answer(3, Completed(result, trace(90.0)), 100.0)
    (array,) = arrays_of([answer], arrays)
    found = decode_answer(answer, array, 5000.0)
    assert isinstance(found, Completed)
    assert found.trace == trace(4990.0)
    assert type(found.result) is type(result)
    if isinstance(result, Labels):
        assert found.result == result
    elif isinstance(found.result, Vector):
        assert found.result.values.tolist() == [1, 2]


def test_an_error_crosses_as_a_value_of_our_tree() -> None:
    error = InvalidParameter("sigma: too large", [FieldError("sigma", "too large", 9)])
    answer, arrays = encode_answer(3, Failed(error), 0.0)
    found = decode_answer(answer, None, 0.0)
    assert arrays == []
    assert isinstance(found, Failed)
    assert isinstance(found.error, InvalidParameter)
    assert (found.error.detail, found.error.errors) == (error.detail, error.errors)
