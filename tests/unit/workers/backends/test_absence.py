"""When a worker is expected back, and at which rate."""

from tests.fakes import FakeClock
from workers.backends.absence import SOON, Absence


def test_an_absence_is_expected_to_last_as_long_again_as_it_has_lasted() -> None:
    clock = FakeClock()
    absence = Absence(clock)
    assert absence.back_in(alive=True) == 0
    assert absence.back_in(alive=False) == SOON
    clock.advance(10.0)
    assert absence.back_in(alive=False) == 10.0
    assert absence.back_in(alive=True) == 0


def test_the_last_rate_is_known_while_nobody_works() -> None:
    absence = Absence(FakeClock())
    assert absence.rate(0.0, alive=True) == 0.0
    assert absence.rate(50.0, alive=True) == 50.0
    assert absence.rate(0.0, alive=False) == 50.0
