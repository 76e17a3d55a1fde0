"""Suggestions for mistyped names."""

from models.did_you_mean import closest, hint


def test_the_closest_name_is_found() -> None:
    for given, expected in [
        ("gausian_blur", "gaussian_blur"),
        ("GAUSSIAN-BLUR", "gaussian_blur"),
        ("sepai", "sepia"),
        ("xylophone", None),
        ("", None),
        ("sepia" + "x" * 10_000_000, None),  # of which only the beginning is compared
    ]:
        assert closest(given, ["gaussian_blur", "sepia", "sobel"]) == expected


def test_a_hint_is_empty_without_a_similar_name() -> None:
    assert hint("zzz", ["sepia"]) == ""
    assert hint("sepa", ["sepia"]) == "did you mean 'sepia'? "
