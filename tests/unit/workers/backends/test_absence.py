"""When a worker is expected back, and at which rate."""

from tests.fakes import FakeClock
from workers.backends.absence import HANDOVER, Absence


def test_a_worker_is_expected_after_the_time_that_the_last_start_took() -> None:
    clock = FakeClock()
    absence = Absence(clock)
    absence.ended(3.0)
    assert absence.back_in(alive=True) == 0
    assert absence.back_in(alive=False) == 3.0
    clock.advance(1.0)
    assert absence.back_in(alive=False) == 2.0


def test_an_absence_that_lasts_longer_is_expected_to_last_as_long_again() -> None:
    clock = FakeClock()
    absence = Absence(clock)
    absence.ended(3.0)
    absence.back_in(alive=False)
    clock.advance(10.0)
    assert absence.back_in(alive=False) == 10.0
    absence.ended(4.0)
    assert absence.back_in(alive=False) == 4.0


def test_the_successor_of_a_worker_that_leaves_is_expected_at_once_or_after_a_start() -> None:
    clock = FakeClock()
    absence = Absence(clock)
    absence.ended(3.0)
    assert absence.back_in(alive=False, hands_over=True) == HANDOVER
    clock.advance(HANDOVER)
    assert absence.back_in(alive=False, hands_over=True) == 3.0 - HANDOVER


def test_the_last_rate_is_known_while_nobody_works() -> None:
    absence = Absence(FakeClock())
    assert absence.rate(0.0, alive=True) == 0.0
    assert absence.rate(50.0, alive=True) == 50.0
    assert absence.rate(0.0, alive=False) == 50.0
