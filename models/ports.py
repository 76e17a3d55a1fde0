"""Lists of ports in settings: `80,443,8000-8999`."""

import functools
import re

HIGHEST = 65535

_PART = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)


@functools.lru_cache(16)
def port_ranges(text: str) -> tuple[range, ...]:
    """Return the ranges of a list; raise ValueError, whose text states the allowed ports."""
    return tuple(_range(part.strip()) for part in text.split(","))


def checked_ports(text: str) -> str:
    """Return the list unchanged if it is valid; raise ValueError."""
    port_ranges(text)
    return text


def _range(part: str) -> range:
    found = _PART.fullmatch(part)
    first = int(found[1]) if found else 0
    last = int(found[2] or first) if found else 0
    if not 1 <= first <= last <= HIGHEST:
        raise ValueError(f"{part!r} is no port or range of ports from 1 to {HIGHEST}: 80,8000-8999")
    return range(first, last + 1)
