"""Which JPEGs are sent encoded."""

from dataclasses import replace

from app.silicon import TYPICAL, DecodeChoice
from models.backend import Load

IDLE = Load("fake", 0, 0, 0, 10_000.0, alive=True, takes_jpegs=True)


def test_a_device_that_decodes_nothing_is_sent_pixels() -> None:
    assert not DecodeChoice(4).device_is_sooner(replace(IDLE, takes_jpegs=False))


def test_an_idle_device_decodes_whatever_its_rate() -> None:
    assert DecodeChoice(4).device_is_sooner(replace(IDLE, service_rate=0.001))


def test_a_long_queue_at_the_device_leaves_images_to_the_threads() -> None:
    choice = DecodeChoice(4)
    assert choice.device_is_sooner(replace(IDLE, queued_jobs=int(10_000 * TYPICAL)))
    assert not choice.device_is_sooner(replace(IDLE, queued_jobs=int(10_000 * TYPICAL) + 1))


def test_a_long_queue_at_the_threads_sends_images_to_the_device() -> None:
    choice = DecodeChoice(4)
    choice.waiting = 40
    assert choice.device_is_sooner(replace(IDLE, queued_jobs=int(10_000 * TYPICAL * 11)))


def test_threads_that_are_slower_than_thought_get_fewer() -> None:
    choice, load = DecodeChoice(4), replace(IDLE, queued_jobs=int(10_000 * TYPICAL * 5))
    assert not choice.device_is_sooner(load)
    for _ in range(100):
        choice.measured(TYPICAL * 10)
    assert choice.device_is_sooner(load)
