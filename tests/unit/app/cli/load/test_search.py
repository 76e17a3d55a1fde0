"""The choice of settings, with measurements that the test makes up."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from app.cli.load.search import Choice, Question, questions, search

FRONT_ENDS = Question("front_ends", "front ends", ["0", "2"])
BATCH = Question("max_batch_size", "images in a batch", ["8", "4", "16"])


def chosen(
    asked: Sequence[Question], rates: Mapping[str, float | None], trials: int = 100
) -> tuple[list[Choice], list[dict[str, str]]]:
    """Search with the rate of each value, for some trials; return the choices and the trials."""
    made: list[dict[str, str]] = []

    async def measure(settings: Mapping[str, str]) -> float | None:
        made.append(dict(settings))
        return rates[[*settings.values()][-1]]

    return asyncio.run(search(asked, measure, lambda: len(made) < trials)), made


def test_a_clearly_faster_value_is_chosen_and_kept_for_the_next_question() -> None:
    choices, trials = chosen([FRONT_ENDS, BATCH], {"0": 100, "2": 140, "4": 100, "16": 130})
    assert [each.value for each in choices] == ["2", "8"]
    assert trials == [
        {"front_ends": "0"},
        {"front_ends": "2"},
        {"front_ends": "0"},
        {"front_ends": "2"},
        {"front_ends": "2", "max_batch_size": "4"},
        {"front_ends": "2", "max_batch_size": "16"},
    ]
    assert choices[0].sentence().endswith("clearly faster than the default, twice)")


def test_what_was_faster_only_once_is_not_chosen() -> None:
    measured = iter([100.0, 140.0, 139.0, 141.0])

    async def measure(_settings: Mapping[str, str]) -> float:
        return next(measured)

    (choice,) = asyncio.run(search([FRONT_ENDS], measure, lambda: True))
    assert (choice.value, choice.rates) == ("0", {"0": 139.0, "2": 140.0})


def test_each_value_that_is_chosen_was_faster_twice() -> None:
    rates = {"8": [100.0] * 3, "4": [150.0, 90.0], "16": [140.0, 80.0]}

    async def measure(settings: Mapping[str, str]) -> float:
        return rates[settings["max_batch_size"]].pop(0)

    (choice,) = asyncio.run(search([BATCH], measure, lambda: True))
    assert (choice.value, choice.rates) == ("8", {"8": 100.0, "4": 90.0, "16": 80.0})
    assert not any(rates.values())


@pytest.mark.parametrize(("again", "expected"), [([100.0, 160.0], 150.0), ([138.0, 140.0], 119.0)])
def test_the_next_question_compares_with_the_mean_of_the_measurements(
    again: list[float], expected: float
) -> None:
    measured = iter([100.0, 140.0, *again, 1.0, 1.0])

    async def measure(_settings: Mapping[str, str]) -> float:
        return next(measured)

    _, choice = asyncio.run(search([FRONT_ENDS, BATCH], measure, lambda: True))
    assert choice.rates["8"] == expected


@pytest.mark.parametrize("trials", [2, 3])
def test_what_cannot_be_repeated_stays_at_the_default(trials: int) -> None:
    (choice,), made = chosen([FRONT_ENDS], {"0": 100, "2": 140}, trials)
    assert len(made) == trials
    assert (choice.value, choice.is_repeated) == ("0", False)
    assert "no time to measure the faster one again" in choice.sentence()


def test_the_default_stays_unless_another_value_is_five_percent_faster() -> None:
    (choice,), _ = chosen([FRONT_ENDS], {"0": 100, "2": 104.9})
    assert choice.value == "0"
    assert choice.sentence() == (
        "front ends: 0 (100.0 images/s with 0, 104.9 images/s with 2; "
        "the default, because nothing is more than 5 % faster)"
    )


def test_a_value_that_does_not_work_is_not_chosen() -> None:
    (choice,), _ = chosen([FRONT_ENDS], {"0": 100, "2": None})
    assert choice.value == "0"
    assert "it did not work with 2" in choice.sentence()
    (choice,), _ = chosen([FRONT_ENDS], {"0": None, "2": 10})
    assert choice.value == "2"
    assert choice.sentence() == (
        "front ends: 2 (it did not work with 0, 10.0 images/s with 2; "
        "the fastest of those that worked)"
    )
    (choice,), _ = chosen([FRONT_ENDS], {"0": None, "2": None})
    assert choice.sentence().endswith("the default, because no value worked)")


def test_what_there_was_no_time_for_is_said_and_left_at_the_default() -> None:
    (first, second), trials = chosen([FRONT_ENDS, BATCH], {"0": 100, "2": 90}, trials=2)
    assert len(trials) == 2
    assert first.is_measured
    assert (second.value, second.is_measured) == ("8", False)
    assert "no time" in second.sentence()


@pytest.mark.parametrize("cores", [1, 2, 4, 64])
@pytest.mark.parametrize("gpus", [0, 1])
def test_questions_begin_with_the_default_and_repeat_no_value(cores: int, gpus: int) -> None:
    asked = questions(cores, front_ends=3 * gpus, gpus=gpus)
    assert [each.setting for each in asked[:2]] == ["front_ends", "max_batch_size"]
    assert asked[0].values[0] == str(3 * gpus)
    for question in asked:
        assert len({*question.values}) == len(question.values) > 1
