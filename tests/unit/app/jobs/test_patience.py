import pytest

from app.jobs.work import LONGEST, LOST, MOST_HOSTS, Patience


class Clock:
    """A clock that stands still between steps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pauses_double_with_jitter_until_the_tries_are_used_up() -> None:
    least, most = Patience(3, Clock(), lambda: 0.0), Patience(3, Clock(), lambda: 1.0)
    assert [least.pause("a", n, None) for n in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, None]
    assert [most.pause("a", n, None) for n in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, None]


def test_retry_after_holds_for_all_images_of_an_origin() -> None:
    clock = Clock()
    patience = Patience(3, clock, lambda: 0.0)
    assert patience.pause("a", 1, 20.0) == 20.0
    clock.now = 5
    assert patience.ahead("a") == 15.0
    assert patience.ahead("b") == 0.0
    clock.now = 25
    assert patience.ahead("a") == 0.0


def test_no_origin_can_ask_for_more_than_a_bounded_time() -> None:
    patience = Patience(3, Clock(), lambda: 0.0)
    assert patience.pause("a", 1, 1e9) == LONGEST
    assert patience.ahead("a") == LONGEST


def test_a_lost_origin_has_one_try_until_it_answers() -> None:
    patience = Patience(2, Clock())
    for _ in range(LOST):
        assert patience.pause("a", 2, None)
        assert patience.pause("a", 3, None) is None
    assert patience.pause("a", 1, None) is None
    patience.answered("a")
    assert patience.pause("a", 1, None)


@pytest.mark.parametrize("hosts", [MOST_HOSTS + 10])
def test_the_number_of_origins_is_bounded(hosts: int) -> None:
    patience = Patience(2, Clock())
    for number in range(hosts):
        patience.pause(f"{number}.example", 1, 50.0)
    assert patience.ahead("0.example") == 0.0
    assert patience.ahead(f"{hosts - 1}.example") == 50.0
