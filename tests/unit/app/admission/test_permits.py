import pytest

from app.admission import Admission, Limits
from models.domain.errors import Draining, Overloaded, TooLarge
from tests.unit.app.admission.simulation import admitted, held


def door() -> Admission:
    return Admission(Limits(images=8, bytes=100, arriving=100))


def test_a_permit_is_given_back_when_its_block_ends_by_an_error() -> None:
    admission = door()
    with pytest.raises(RuntimeError), admitted(admission, 2, 10):
        raise RuntimeError
    assert held(admission) == (0, 0)


@pytest.mark.parametrize(("images", "n_bytes"), [(7, 0), (1, 95)])
def test_what_does_not_fit_beside_the_others_is_shed(images: int, n_bytes: int) -> None:
    admission = door()
    with admitted(admission, 2, 10), pytest.raises(Overloaded):
        admitted(admission, images, n_bytes)


def test_what_could_never_fit_is_too_large_rather_than_overload() -> None:
    with pytest.raises(TooLarge):
        admitted(door(), 9, 0)


def test_a_refused_growth_keeps_what_was_held() -> None:
    admission = door()
    with admitted(admission, 6, 0), admitted(admission, 1, 0) as permit:
        with pytest.raises(Overloaded):
            permit.grow(2, 0)
        assert held(admission) == (7, 0)
    assert held(admission) == (0, 0)


def test_a_draining_server_admits_nobody() -> None:
    admission = door()
    admission.draining = True
    with pytest.raises(Draining):
        admitted(admission, 1, 0)


def test_retry_after_is_the_wait_of_the_client_and_not_that_of_a_client_with_all_places() -> None:
    admission = door()
    for each in [admitted(admission, 1, 1, "flood") for _ in range(8)]:
        admission.line.add(each.turn(250_000))
    with pytest.raises(Overloaded) as other:
        admitted(admission, 1, 10, "other")
    with pytest.raises(Overloaded) as flood:
        admitted(admission, 1, 10, "flood")
    assert other.value.retry_after <= 1.0
    assert flood.value.retry_after == pytest.approx(2.0, rel=0.1)
