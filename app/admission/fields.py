"""What is counted over all front ends; `counters.py` keeps the counts."""

from enum import IntEnum


class Total(IntEnum):
    """What is counted once for the whole server."""

    IMAGES = 0
    """Images admitted and not yet answered."""
    BYTES = 1
    """Upload bytes admitted and not yet answered."""
    ARRIVING = 2
    """Bytes of bodies that are still arriving."""
    REQUESTS = 3
    """Requests under way on the image routes, those whose body still arrives among them."""
    PIXELS = 4
    """Decoded pixels in memory."""
    FETCHES = 5
    """URLs being fetched."""
    CONNECTIONS = 6
    """Open connections of clients."""
    WORK = 7
    """Estimated microseconds of work that are admitted and not finished."""
    DONE = 8
    """Estimated microseconds of work that were finished since the start."""


class ByKey(IntEnum):
    """What is counted for each key."""

    IMAGES = 0
    ARRIVING = 1
    WORK = 2
    CONNECTIONS = 3
    FETCHES = 4


class Mark(IntEnum):
    """Numbers of one column that are not added up."""

    OWNER = 0
    """Process id of the front end that writes this column; 0: the column is free."""
    BEAT = 1
    """Monotonic nanoseconds when this front end last looked after its waiting work."""
    PIXELS_SINCE = 2
    """Monotonic nanoseconds since which this front end's oldest image waits for pixels, or 0."""
    FETCHES_SINCE = 3
    """The same for fetches."""
    CONTENDED = 4
    """Monotonic nanoseconds when a client with a small share was last refused."""
