"""The bytes that a filter uploads with each image."""

from workers.filters.registry import FILTERS, parse_one


def test_what_is_uploaded_for_an_image_lets_hundreds_share_a_slot() -> None:
    for name in [name for name, each in FILTERS.items() if each.passes]:
        filter_ = parse_one(name, {k: v for k, v in FILTERS[name].example.items() if k != "name"})
        assert len(filter_.device_data((4000, 6000, 3))) <= 8192
