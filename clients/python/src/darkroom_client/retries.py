"""Decide whether a request is sent again, and when. Nothing here waits or looks at a clock."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_TOLD = 600.0
"""Longest `Retry-After` in seconds that is waited for; a longer one fails the call at once."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is tried, and the pauses between tries in seconds.

    Pauses double from `first_pause` to `longest_pause`, and are never shorter than the server's
    `Retry-After`. A deadline bounds all tries together.
    """

    tries: int = 6
    first_pause: float = 0.5
    longest_pause: float = 60.0

    def pause(
        self, tried: int, told: float | None, left: float | None, chance: float
    ) -> float | None:
        """Return the seconds before the next try, or None if there is none.

        `tried` counts the tries so far, `told` is the server's `Retry-After`, `left` the seconds
        before the deadline, and `chance` a random number from 0 to 1, so that many clients that
        were refused together do not come back together.
        """
        if tried >= self.tries or (told or 0) > LONGEST_TOLD:
            return None
        backoff = min(self.longest_pause, self.first_pause * 2 ** (tried - 1))
        if told is None:
            seconds = backoff * (0.5 + chance / 2)
        else:
            seconds = max(told, backoff) * (1 + chance / 4)
        return None if left is not None and seconds >= left else seconds


DEFAULT = Retries()
"""The retries of clients that are given none."""


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds of `Retry-After`, given as seconds or as a date; None without one."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())


def again(status: int, headers: Mapping[str, str], *, is_problem: bool, own_deadline: bool) -> bool:
    """Return whether an answer allows another try.

    Darkroom says so by `Retry-After`. A 429, 502, 503 or 504 that is no problem document comes from
    a proxy, which limits its clients or whose server is being replaced. A request that missed the
    server's default deadline may be sent again; a request that missed the caller's may not. 408
    means that the body came too slowly.
    """
    if status in (429, 503) and retry_after(headers) is not None:
        return True
    if status == 504 and is_problem:
        return not own_deadline
    return status == 408 or (status in (429, 502, 503, 504) and not is_problem)


LATER = frozenset({"overloaded", "connections_exhausted", "draining", "unavailable", "worker_lost"})
"""Codes of single images that another try may help, beside 429."""


def again_for_image(status: int, code: str, *, own_deadline: bool) -> bool:
    """Return whether an image that failed may be sent again, beside others that did not fail.

    An image that missed the server's default deadline may; one that missed the caller's may not.
    """
    return status == 429 or code in LATER or (code == "deadline_exceeded" and not own_deadline)
