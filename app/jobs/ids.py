"""The ids of jobs, which are ordered by the time at which they were made."""

import secrets
import time


def new_id() -> str:
    """Return the id of a new job: milliseconds since 1970, then random digits, 32 in all."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"
