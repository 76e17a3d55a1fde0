"""Choose settings by measurement: one setting after the other, each with the best value so far.

A value other than the default is chosen only if it is clearly better in two measurements: those of
the same settings differ by some percent, on a busy machine by more.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

CLEARLY = 1.05
"""The ratio of rates from which one value is better than another."""

Measure = Callable[[Mapping[str, str]], Awaitable[float | None]]
"""Return the images per second of a server with these settings; None if it does not work."""

Measurements = dict[str, list[float | None]]
"""The results for each value of a setting, in the order of their measurement."""


@dataclass(frozen=True, slots=True)
class Question:
    """A setting and the values to compare; the first one is the default.

    `noun` is what the setting counts, as `front ends`.
    """

    setting: str
    noun: str
    values: Sequence[str]


@dataclass(frozen=True, slots=True)
class Choice:
    """The value chosen for a setting, and the rates that were measured, in images per second."""

    question: Question
    value: str
    rates: Mapping[str, float | None] = field(default_factory=dict)
    is_repeated: bool = True
    """Whether there was time to measure a faster value again."""

    @property
    def is_measured(self) -> bool:
        """Return whether at least two values were compared."""
        return len(self.rates) > 1

    def sentence(self) -> str:
        """Explain the choice with its measurements."""
        noun, default = self.question.noun, self.question.values[0]
        if not self.is_measured:
            return f"{noun}: the default, {default}, because there was no time to compare others"
        told = ", ".join(f"{_rate(rate)} with {value}" for value, rate in self.rates.items())
        return f"{noun}: {self.value} ({told}; {self._reason(default)})"

    def _reason(self, default: str) -> str:
        if not self.is_repeated:
            return "the default, because there was no time to measure the faster one again"
        if self.rates.get(default) is None:
            if self.value == default:
                return "the default, because no value worked"
            return "the fastest of those that worked"
        if self.value == default:
            return "the default, because nothing is more than 5 % faster"
        return "clearly faster than the default, twice"


def questions(cores: int, front_ends: int, gpus: int) -> list[Question]:
    """Return what to compare on a machine with these cores and GPUs.

    `front_ends` is what the server would take by itself.
    """
    other = [max(2, front_ends // 2), cores] if gpus else [2, max(2, cores // 2)]
    numbers = [str(each) for each in dict.fromkeys([front_ends, *other])]
    batches = ["64", "32", "128"] if gpus else ["8", "4", "16"]
    found = [
        Question("front_ends", "front ends", numbers),
        Question("max_batch_size", "images in a batch", batches),
    ]
    if cores > 2:  # half of the cores: where two of them are threads of one
        found.append(Question("threads", "cores to compute with", [str(cores), str(cores // 2)]))
    return found


async def search(
    asked: Sequence[Question],
    measure: Measure,
    left: Callable[[], bool],
) -> list[Choice]:
    """Answer the questions in order, as long as there is time `left`."""
    chosen: dict[str, str] = {}
    choices = []
    best: float | None = None
    for question in asked:
        results: Measurements = {}
        for value in question.values:
            if value == question.values[0] and best is not None:
                results[value] = [best]  # measured with the previous question
            elif left():
                results[value] = [await measure({**chosen, question.setting: value})]
        repeated = await _repeated(question, results, {**chosen}, measure, left)
        rates = _compared(question, results)
        value = _chosen(question, rates) if repeated else question.values[0]
        chosen[question.setting] = value
        best = _mean(results[value]) if value in results else best
        choices.append(Choice(question, value, rates, repeated))
    return choices


async def _repeated(
    question: Question,
    results: Measurements,
    chosen: Mapping[str, str],
    measure: Measure,
    left: Callable[[], bool],
) -> bool:
    """Measure a faster value and the default again, until each value that is faster was repeated.

    Returns False if there is no time for that.
    """
    default, repeated = question.values[0], set[str]()
    while (rates := _compared(question, results)).get(default) is not None:
        value = _chosen(question, rates)
        if value == default or value in repeated:
            break
        for each in (default, value):
            if not left():
                return False
            results[each].append(await measure({**chosen, question.setting: each}))
        repeated.add(value)
    return True


def _compared(question: Question, results: Measurements) -> dict[str, float | None]:
    """Return the lowest rate of each value, and the highest of the default.

    None if a value did not work in one of its measurements.
    """
    rates: dict[str, float | None] = {}
    for value, measured in results.items():
        worked = [rate for rate in measured if rate is not None]
        keep = max if value == question.values[0] else min
        rates[value] = keep(worked) if len(worked) == len(measured) else None
    return rates


def _mean(measured: Sequence[float | None]) -> float | None:
    """Return the mean, None if one of the measurements did not work.

    The next question compares with it: the lowest or highest rate would favour one side there.
    """
    worked = [rate for rate in measured if rate is not None]
    return sum(worked) / len(worked) if len(worked) == len(measured) else None


def _chosen(question: Question, rates: Mapping[str, float | None]) -> str:
    default = question.values[0]
    worked = {value: rate for value, rate in rates.items() if rate is not None}
    if not worked:
        return default
    fastest = max(worked, key=lambda value: worked[value])
    if default in worked and worked[fastest] < CLEARLY * worked[default]:
        return default
    return fastest


def _rate(rate: float | None) -> str:
    return "it did not work" if rate is None else f"{rate:.1f} images/s"
