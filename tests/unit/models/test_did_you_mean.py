"""Suggestions for mistyped names."""

from models.did_you_mean import closest, hint


def test_the_closest_name_is_found() -> None:
    for given, expected in [
        ("gausian_blur", "gaussian_blur"),
        ("GAUSSIAN-BLUR", "gaussian_blur"),
        ("sepai", "sepia"),
        ("xylophone", None),
        ("", None),
    ]:
        assert closest(given, ["gaussian_blur", "sepia", "sobel"]) == expected


def test_only_the_beginning_of_a_long_name_is_compared() -> None:
    assert closest("sepia" + "x" * 10_000_000, ["sepia"]) is None


def test_a_hint_is_empty_without_a_similar_name() -> None:
    assert hint("zzz", ["sepia"]) == ""
    assert hint("sepa", ["sepia"]) == "did you mean 'sepia'? "
