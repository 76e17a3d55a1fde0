"""What encoding costs is known before it is begun."""

from typing import Any

import pytest

from models.codec import Encoding, ImageFormat, check_encode_cost
from models.codec.costs import encode_cost
from models.domain.errors import Unprocessable


@pytest.mark.parametrize("format_", [ImageFormat.AVIF, ImageFormat.PNG])
def test_smaller_files_take_longer(format_: ImageFormat) -> None:
    name, values = (
        ("avif_speed", range(11)) if format_ == "avif" else ("png_level", range(9, -1, -1))
    )
    options: list[dict[str, Any]] = [{name: each} for each in values]
    costs = [encode_cost(10**6, format_, Encoding(**each)) for each in options]
    assert costs == sorted(costs, reverse=True)


def test_what_would_take_too_long_is_refused_with_what_to_do() -> None:
    with pytest.raises(Unprocessable) as error:
        check_encode_cost(50_000_000, ImageFormat.AVIF, Encoding(avif_speed=0), 60.0)
    assert "50,000,000 pixels" in error.value.detail
    assert "2,150 s" in error.value.detail
    assert "a higher avif_speed" in error.value.detail


def test_the_largest_image_is_encoded_where_nothing_is_asked() -> None:
    for format_ in (ImageFormat.JPEG, ImageFormat.PNG, ImageFormat.WEBP, ImageFormat.AVIF):
        assert check_encode_cost(50_000_000, format_, Encoding(), 60.0) < 5
