"""Which JPEGs are sent encoded."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.pipeline.decode_placement import AHEAD, TYPICAL, DecodePlacement, IdleCores
from app.system.cpu import CpuLimit
from models.domain.backend import Load
from tests.fakes import FakeClock


def choosing(idle: float = 0.9) -> DecodePlacement:
    return DecodePlacement(4, lambda: idle)


IDLE = Load("fake", 0, 0, 0, 10_000.0, alive=True, takes_jpegs=True, decoding=1.0)


def test_a_device_that_decodes_nothing_is_sent_pixels() -> None:
    assert not choosing().device_is_sooner(replace(IDLE, takes_jpegs=False))


def test_an_idle_device_decodes_whatever_its_rate() -> None:
    assert choosing().device_is_sooner(replace(IDLE, service_rate=0.001))


def test_a_long_queue_at_the_device_leaves_images_to_the_threads() -> None:
    choice = choosing()
    assert choice.device_is_sooner(replace(IDLE, queued_jobs=AHEAD + int(10_000 * TYPICAL)))
    assert not choice.device_is_sooner(replace(IDLE, queued_jobs=AHEAD + int(10_000 * TYPICAL) + 1))


def test_a_long_queue_at_the_threads_sends_images_to_the_device() -> None:
    choice = choosing()
    choice.waiting = 40
    assert choice.device_is_sooner(replace(IDLE, queued_jobs=AHEAD + int(10_000 * TYPICAL * 11)))


def test_threads_that_are_slower_than_thought_get_fewer() -> None:
    choice, load = choosing(), replace(IDLE, queued_jobs=AHEAD + int(10_000 * TYPICAL * 5))
    assert not choice.device_is_sooner(load)
    for _ in range(100):
        choice.measured(TYPICAL * 10)
    assert choice.device_is_sooner(load)


def test_threads_do_not_help_while_the_machine_has_no_cores_to_spare() -> None:
    load = replace(IDLE, queued_jobs=10_000)
    assert not choosing(idle=0.5).device_is_sooner(load)
    assert choosing(idle=0.1).device_is_sooner(load)


def test_threads_do_not_help_a_worker_that_is_busy_with_something_else() -> None:
    assert choosing().device_is_sooner(replace(IDLE, queued_jobs=10_000, decoding=0.5))


def test_idle_time_is_what_passed_between_two_looks(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu 100 0 100 700 100 0 0 0 0 0\n")
    cores = IdleCores(stat)
    stat.write_text("cpu 150 0 100 740 110 0 0 0 0 0\n")
    assert cores.share() == pytest.approx(0.5)
    stat.write_text("cpu 999 0 100 740 110 0 0 0 0 0\n")
    assert cores.share() == pytest.approx(0.5), "looked again too soon"
    assert IdleCores(tmp_path / "none").share() == 0


def test_in_a_container_the_quota_counts_and_not_the_host_s_idle_cores(tmp_path: Path) -> None:
    stat, used, clock = tmp_path / "stat", [0.0], FakeClock(10.0)
    stat.write_text("cpu 100 0 100 700 100 0 0 0 0 0\n")
    cores = IdleCores(stat, lambda: CpuLimit(2.0, lambda: used[0]), clock)
    stat.write_text("cpu 101 0 100 1699 100 0 0 0 0 0\n")
    clock.advance(1.0 - IdleCores.LOOK)
    used[0] = 1.5
    assert cores.share() == pytest.approx(0.25)
