"""Conditional requests by ETag (RFC 9110, section 13.1.2)."""


def matches(if_none_match: str | None, etag: str) -> bool:
    """Return whether `If-None-Match` names the ETag, or is `*`; the comparison is the weak one."""
    if if_none_match is None:
        return False
    named = (each.strip().removeprefix("W/") for each in if_none_match.split(","))
    return any(each in ("*", etag) for each in named)
