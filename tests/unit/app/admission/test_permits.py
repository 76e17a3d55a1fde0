import pytest

from app.admission import Admission, Amount, Limits
from models.domain.errors import Draining, Overloaded, TooLarge


def door() -> Admission:
    return Admission(Limits(images=8, bytes=100, arriving=100))


def test_a_permit_is_given_back_when_its_block_ends_by_an_error() -> None:
    admission = door()
    with pytest.raises(RuntimeError), admission.admit(2, 10):
        raise RuntimeError
    assert admission.held == Amount(0, 0)


@pytest.mark.parametrize(("images", "n_bytes"), [(7, 0), (1, 95)])
def test_what_does_not_fit_beside_the_others_is_shed(images: int, n_bytes: int) -> None:
    admission = door()
    with admission.admit(2, 10), pytest.raises(Overloaded):
        admission.admit(images, n_bytes)


def test_what_could_never_fit_is_too_large_rather_than_overload() -> None:
    with pytest.raises(TooLarge):
        door().admit(9, 0)


def test_a_refused_growth_keeps_what_was_held() -> None:
    admission = door()
    with admission.admit(6, 0), admission.admit(1, 0) as permit:
        with pytest.raises(Overloaded):
            permit.grow(2, 0)
        assert admission.held == Amount(7, 0)
    assert admission.held == Amount(0, 0)


def test_a_draining_server_admits_nobody() -> None:
    admission = door()
    admission.draining = True
    with pytest.raises(Draining):
        admission.admit(1, 0)


def test_retry_after_is_the_wait_of_the_client_and_not_that_of_a_client_with_all_places() -> None:
    admission = door()
    admission.admit(8, 10, "flood")
    admission.account.charge(admission.counters.key("client flood"), 20_000_000, 8)
    with pytest.raises(Overloaded) as other:
        admission.admit(1, 10, "other")
    with pytest.raises(Overloaded) as flood:
        admission.admit(1, 10, "flood")
    assert other.value.retry_after <= 1.0
    assert flood.value.retry_after == 20.0
