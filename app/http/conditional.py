"""Conditional requests by ETag (RFC 9110, section 13.1.2)."""


def matches(if_none_match: str | None, etag: str) -> bool:
    """Return whether `If-None-Match` names the ETag, or is `*`; the comparison is the weak one."""
    return if_none_match is not None and (names(if_none_match, etag) or "*" in _tags(if_none_match))


def names(if_none_match: str, etag: str) -> bool:
    """Return whether `If-None-Match` lists the ETag itself; `*` lists none. Both may be weak."""
    return etag.removeprefix("W/") in _tags(if_none_match)


def _tags(if_none_match: str) -> list[str]:
    return [each.strip().removeprefix("W/") for each in if_none_match.split(",")]
