"""How long images of a job wait for an origin that is busy or cannot be reached.

An origin is given time once, not once for each of its images: a host that is gone would else keep
a job of 100,000 of its images busy for days.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

FETCH_RETRIES = 4
"""Further tries of an image whose origin is busy or cannot be reached, beside those of a fetch."""

FIRST, LONGEST = 1.0, 60.0
"""Seconds before the second try of an image, doubled for each further one; and at most."""

LOST = 3
"""Images in a row that were given up, after which an origin has one try for each further image."""

MOST_HOSTS = 4096
"""Origins that are remembered; the one that failed first is forgotten first."""


@dataclass(slots=True)
class _Origin:
    """Images in a row that were given up, and the time before which the origin wants no request."""

    lost: int = 0
    until: float = 0.0


class Patience:
    """Pauses before further tries; `clock` returns seconds, `chance` a number from 0 to 1."""

    def __init__(
        self, retries: int, clock: Callable[[], float], chance: Callable[[], float] = random.random
    ) -> None:
        self._retries = retries
        self._clock = clock
        self._chance = chance
        self._origins: dict[str, _Origin] = {}

    def ahead(self, host: str) -> float:
        """Return the seconds to wait before an image is asked of a host, mostly 0."""
        known = self._origins.get(host)
        return 0.0 if known is None else min(LONGEST, max(0.0, known.until - self._clock()))

    def pause(self, host: str, tries: int, asked: float | None) -> float | None:
        """Return the seconds before the next try after `tries` that failed; None: give up.

        `asked` are the seconds of the origin's own `Retry-After`, which hold for all its images.
        """
        known = self._origins.setdefault(host, _Origin())
        if len(self._origins) > MOST_HOSTS:
            del self._origins[next(iter(self._origins))]
        if tries > self._retries or known.lost >= LOST:
            known.lost += 1
            return None
        if asked:
            known.until = max(known.until, self._clock() + min(asked, LONGEST))
        usual = min(LONGEST, FIRST * 2.0 ** (tries - 1)) * (0.5 + self._chance() / 2)
        return max(usual, self.ahead(host))

    def answered(self, host: str) -> None:
        """Forget the failures of a host that has answered."""
        self._origins.pop(host, None)
