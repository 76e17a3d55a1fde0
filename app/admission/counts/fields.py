"""Name what is counted over all front ends; `counters.py` keeps the counts."""

from enum import IntEnum


class Total(IntEnum):
    """Counts of the whole server."""

    IMAGES = 0
    """Images admitted and not yet answered."""
    BYTES = 1
    """Upload bytes admitted and not yet answered."""
    ARRIVING = 2
    """Bytes of bodies that are still arriving."""
    REQUESTS = 3
    """Requests in progress on the image routes, including those whose body is still arriving."""
    PIXELS = 4
    """Decoded pixels in memory."""
    FETCHES = 5
    """URLs being fetched."""
    CONNECTIONS = 6
    """Open connections of clients."""
    WORK = 7
    """Expected microseconds of work that is admitted and not completed."""
    PAST = 8
    """The same of images that have passed their line."""
    LARGE_MEMORY = 9
    """Estimated bytes that large images take which are in progress, the largest ones excepted."""
    HUGE_MEMORY = 10
    """Estimated bytes that those images take which need more than half of a budget."""
    UNREAD = 11
    """Bytes of encoded images that their clients have not read."""
    EXPECTED = 12
    """Images whose work is counted in WORK."""
    THROUGH = 13
    """Images that have passed their line, and are decoded, computed and encoded."""


class ByKey(IntEnum):
    """Counts of each key."""

    IMAGES = 0
    ARRIVING = 1
    WORK = 2
    CONNECTIONS = 3
    FETCHES = 4
    FOLLOWERS = 5
    """Requests that follow the results of a job."""


class Mark(IntEnum):
    """Values of single front ends, which are not added up."""

    OWNER = 0
    """Process id of the front end that writes this column; 0 if the column is free."""
    BEAT = 1
    """Monotonic nanoseconds at which this front end last checked its waiting work."""
    PIXELS_SINCE = 2
    """Monotonic nanoseconds since which this front end's oldest image waits for pixels, else 0."""
    FETCHES_SINCE = 3
    """The same for fetches."""
    CONTENDED = 4
    """Monotonic nanoseconds at which a client with a small share was last refused."""
    LARGE_MEMORY_SINCE = 5
    """As PIXELS_SINCE, for the memory of large images."""
    HUGE_MEMORY_SINCE = 6
    """As PIXELS_SINCE, for the memory of the largest images."""
