"""Inputs of networks between front ends and workers: the same values, and a key of their own."""

import numpy as np

from models.domain.image import NetworkInput
from models.domain.job import Job
from workers.backends.multi_process import bytes_for
from workers.ipc.conversion import decode_input, decode_operation, encode_operation, encode_source
from workers.operations import Classify


def test_an_input_comes_back_with_its_operation() -> None:
    values = np.random.default_rng(0).normal(0, 1, (3, 5, 7)).astype(np.float32)
    source, operation = NetworkInput(values), Classify(preprocessed=True)
    shape, jpeg = encode_source(source)
    assert bytes_for(Job(operation, source)) == values.nbytes
    decoded = decode_operation(encode_operation(operation))
    assert decoded == operation
    assert decoded.batch_key == operation.batch_key
    found = decode_input(source.data.reshape(shape), jpeg, decoded)
    assert isinstance(found, NetworkInput)
    assert (found.values == values).all()


def test_an_operation_of_an_older_front_end_is_for_an_image() -> None:
    encoded = encode_operation(Classify())
    assert isinstance(encoded, dict)
    del encoded["preprocessed"]
    assert decode_operation(encoded) == Classify()
