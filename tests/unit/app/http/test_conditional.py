import pytest

from app.http.negotiation import matches, names


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


@pytest.mark.parametrize(("header", "found"), [('"b", W/"a"', True), ("*", False), ("", False)])
def test_a_wildcard_names_no_etag_of_an_answer_that_is_not_computed(
    header: str, found: bool
) -> None:
    assert names(header, '"a"') is found


@pytest.mark.parametrize("header", ['"a"', 'W/"a"', '"b", W/"a"'])
def test_a_weak_etag_is_named_by_weak_and_strong_ones(header: str) -> None:
    assert names(header, 'W/"a"')
    assert matches(header, 'W/"a"')
