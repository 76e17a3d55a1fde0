import pytest

from app.http.conditional import matches


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (None, False),
        ('"a"', True),
        ('W/"a"', True),
        ('"b", "a"', True),
        ("*", True),
        ('"b"', False),
        ("a", False),
    ],
)
def test_an_etag_matches_if_the_header_names_it(header: str | None, found: bool) -> None:
    assert matches(header, '"a"') is found
