"""The time that filters are expected to take before they were measured."""

import pytest

from workers.filters import registry
from workers.filters.registry import FILTERS, USUAL, nanoseconds, parse_chain


def test_every_slow_filter_is_one_that_exists() -> None:
    assert set(registry._SLOW) <= set(FILTERS)


@pytest.mark.parametrize("name", list(FILTERS))
def test_every_filter_has_an_expected_time(name: str) -> None:
    assert nanoseconds(parse_chain([FILTERS[name].example])) > 0


def test_the_times_of_a_chain_add_up_and_parameters_count() -> None:
    assert nanoseconds(parse_chain([{"name": "invert"}, {"name": "sepia"}])) == 2 * USUAL
    few, many = ({"name": "nl_means", "search": search} for search in (3, 21))
    assert nanoseconds(parse_chain([many])) == 49 * nanoseconds(parse_chain([few]))
