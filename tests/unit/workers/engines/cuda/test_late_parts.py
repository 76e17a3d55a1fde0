"""Parts that a thread makes while others work."""

import logging
import threading
from collections.abc import Iterator

import pytest

from workers.engines.cuda import late_parts
from workers.engines.cuda.late_parts import LateParts, Part, Retried


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_parts, "PAUSE", 0.0)


def test_parts_are_made_in_order_and_one_that_fails_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made: list[int] = []

    def fail() -> None:
        raise RuntimeError("no memory")

    late = LateParts(iter([lambda: made.append(1), fail, lambda: made.append(2)]))
    late.start()
    assert late.join(30)
    assert made == [1, 2]
    assert [each.levelno for each in caplog.records] == [logging.ERROR]


def test_parts_that_cannot_be_listed_are_logged_and_end_no_thread_unseen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made: list[int] = []

    def parts() -> Iterator[Part]:
        yield lambda: made.append(1)
        raise RuntimeError("no memory")

    late = LateParts(parts())
    late.start()
    assert late.join(30)
    assert made == [1]
    assert [each.levelno for each in caplog.records] == [logging.ERROR]


def test_nothing_more_is_made_after_the_end() -> None:
    begun, go_on, made = threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        assert go_on.wait(30)

    late = LateParts(iter([first, lambda: made.append(2)]))
    late.start()
    assert begun.wait(30)
    assert not late.join(0.0)
    ending = threading.Thread(target=late.close)
    ending.start()
    while not late._closing.is_set():
        pass
    go_on.set()
    ending.join(30)
    assert late.join(0.0)
    assert made == []


def test_a_part_without_memory_is_made_again_as_often_as_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late_parts, "AGAIN", (0.05, 0.05))
    tried: list[str] = []

    def slot(needed: int, name: str) -> Part:
        def make() -> None:
            tried.append(name)
            if tried.count(name) < needed:
                raise RuntimeError("no memory")

        return Retried(make)

    def states() -> Iterator[Part]:
        yield slot(2, "late")
        yield slot(9, "never")
        yield lambda: tried.append("others go on")

    late = LateParts(states())
    late.start()
    assert late.join(30)
    assert tried[:3] == ["late", "never", "others go on"]
    assert (tried.count("late"), tried.count("never")) == (2, 3)
