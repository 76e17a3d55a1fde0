"""Count the work that a request asks for and that has not begun, and its images that wait."""

from collections.abc import Hashable, Sequence

from app.admission.counts.counters import Counters, Key
from app.admission.counts.fields import Total
from app.admission.prediction.capacity import MICRO
from app.admission.prediction.forecast import Forecast


class ExpectedWork:
    """The work of one request that is charged to its client before it begins, by estimate.

    Of images that wait for their origins, and of those whose answers are known, none is expected.
    """

    def __init__(self, forecast: Forecast, counters: Counters, key: Key) -> None:
        self._forecast = forecast
        self._counters = counters
        self._key = key
        self._charged = self._awaited = self._answered = 0
        self._left: dict[Hashable, int] = {}
        self._of_each: dict[Hashable, int] = {}
        """How often each item wants work of a kind."""

    def add(self, n_images: int, kinds: Sequence[Hashable], work: int) -> None:
        """Charge `work` microseconds for work of these kinds on each of `n_images` images."""
        self._charged += work
        for kind in kinds:
            self._left[kind] = self._left.get(kind, 0) + n_images
            self._of_each[kind] = kinds.count(kind)
        self._forecast.charge(self._key, work)

    def begin(self, kind: Hashable) -> int:
        """Return what was charged for one image whose work of a kind begins; count it no more."""
        before = min(self._charged, int(self._forecast.costs.estimate(kind) * MICRO))
        self._charged -= before
        if left := self._left.get(kind, 0):
            self._left[kind] = left - 1
        return before

    def estimate_again(self) -> None:
        """Charge again, because the cost of some kind has been learnt."""
        estimate, awaited = self._forecast.costs.estimate, self._awaited
        left = ((kind, max(0, n - awaited)) for kind, n in self._left.items())
        now = int(sum(n * estimate(kind) for kind, n in left) * MICRO)
        self._forecast.charge(self._key, now - self._charged)
        self._charged = now

    def awaits(self, n_images: int) -> None:
        """Count images as waiting for their origins; a negative number counts less."""
        self._awaited += n_images
        self._counters.add(Total.AWAITED, n_images)
        self.estimate_again()

    def answered(self, n_images: int, held: int) -> None:
        """Count one item as answered, which counts as `n_images` of the `held` images.

        No work on it is left, but its client may not read the answer for minutes. What was expected
        of it and was not done is taken back at once: it would stay in the forecast of all others,
        and they would be refused because of work that is never done.
        """
        self._answered += n_images
        self._counters.add(Total.ANSWERED, n_images)
        items = max(0, held - self._answered) // n_images
        if items:
            self._left = {k: min(n, items * self._of_each[k]) for k, n in self._left.items()}
            self.estimate_again()
        else:
            self._left.clear()
            if self._charged:
                self._take_back()

    def end(self) -> None:
        """Take everything back: the request has ended."""
        if self._charged:
            self._take_back()
        self._counters.add(Total.ANSWERED, -self._answered)
        self._answered = 0
        self._left.clear()

    def _take_back(self) -> None:
        self._forecast.charge(self._key, -self._charged)
        self._charged = 0
