"""Which requests are begun before all others."""

import pytest

from app.connections.health_checks import LONGEST_QUERY, PATHS, PEEKED, begins_check, is_check


@pytest.mark.parametrize("path", sorted(PATHS))
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_first_bytes_of_a_health_check_show_it(method: str, path: str) -> None:
    assert begins_check(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()[:PEEKED])
    assert is_check(path, b"")


@pytest.mark.parametrize(
    "data", [b"", b"G", b"GET / HTTP/1.1\r\n", b"POST /livez", b"\x16\x03\x01"]
)
def test_other_first_bytes_do_not(data: bytes) -> None:
    assert not begins_check(data)


def test_a_health_check_with_a_long_query_is_not_urgent() -> None:
    assert is_check("/readyz", b"verbose")
    assert not is_check("/readyz", b"a" * (LONGEST_QUERY + 1))
