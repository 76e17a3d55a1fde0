"""The load of a backend."""

import pytest

from models.domain.backend import Load


@pytest.mark.parametrize(
    ("device", "on_gpu"),
    [
        ("cuda:0", True),
        ("cuda:0, cuda:1", True),
        ("cpu", False),
        ("cuda:0, cpu", False),
        ("", False),
    ],
)
def test_a_backend_is_on_gpus_if_all_of_its_workers_are(device: str, on_gpu: bool) -> None:
    assert Load(device, 0, 0, 0, 0.0, alive=True).on_gpu is on_gpu
