"""What the driver of the GPUs tells, without a driver."""

from workers.supervision.gpu_discovery import count_gpus, uuid_of


def test_a_gpu_that_is_not_there_has_no_uuid() -> None:
    number = count_gpus()
    assert uuid_of(f"cuda:{number}") == ""


def test_a_cpu_has_no_uuid() -> None:
    assert uuid_of("cpu") == ""
