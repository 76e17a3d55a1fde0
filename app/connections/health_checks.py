"""Tell health checks from other requests: they are begun first, because they must never be late."""

PATHS = frozenset(
    (
        *("/livez", "/readyz", "/startupz", "/health", "/healthz"),
        *("/v2/health/live", "/v2/health/ready"),
    )
)

PEEKED = 24
"""Bytes of a connection that show whether its first request is a health check."""

LONGEST_QUERY = 32
"""Bytes of the query of a health check. To read a long one takes milliseconds."""

_BEGINNINGS = tuple(f"{method} {path}".encode() for method in ("GET", "HEAD") for path in PATHS)


def begins_check(data: bytes) -> bool:
    """Return whether the first `PEEKED` bytes of a connection may be those of a health check."""
    return data.startswith(_BEGINNINGS)


def is_check(path: str, query: bytes) -> bool:
    """Return whether a request is a health check."""
    return path in PATHS and len(query) <= LONGEST_QUERY
