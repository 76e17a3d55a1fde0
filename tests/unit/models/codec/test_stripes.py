"""Large images are converted stripe by stripe, to the same pixels as in one piece."""

from io import BytesIO

import numpy as np
import pytest
import simplejpeg
from PIL import Image as PillowImage

from models import codec
from models.codec import stripes
from models.domain.image import Image, Pixels
from tests.pictures import drawing

WIDTH, HEIGHT = 37, 23


def written(format_: str, mode: str, **options: object) -> bytes:
    picture = drawing(WIDTH, HEIGHT)
    if mode == "F":
        picture = PillowImage.fromarray(np.asarray(picture.convert("L"), np.float32) / 300)
    elif mode == "I;16":
        picture = PillowImage.fromarray(np.asarray(picture.convert("L"), np.uint16) * 257)
    elif mode in ("RGBA", "LA"):
        picture = picture.convert(mode)
        picture.putalpha(drawing(WIDTH, HEIGHT).convert("L"))
    else:
        picture = picture.convert(mode)
    file = BytesIO()
    picture.save(file, format_, **options)
    return file.getvalue()


def oriented(orientation: int, format_: str) -> bytes:
    exif = PillowImage.Exif()
    exif[0x0112] = orientation
    return written(format_, "RGB", exif=exif.tobytes())


def decoded(data: bytes, into: stripes.NewPixels | None = None) -> Pixels:
    opened = codec.open_file(data, max_pixels=10_000)
    image = (opened.decode(new_pixels=into) if into else opened.decode()).image
    assert isinstance(image, Image)
    return image.pixels


FILES = {
    **{
        f"png {mode}": written("PNG", mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
    },
    "png transparent colour": written("PNG", "RGB", transparency=(255, 255, 255)),
    "png palette with alpha": written("PNG", "P", transparency=bytes(range(256))),
    **{f"tiff {mode}": written("TIFF", mode) for mode in ("F", "CMYK", "RGBA")},
    "webp": written("WEBP", "RGB"),
    "webp alpha": written("WEBP", "RGBA"),
    "avif": written("AVIF", "RGB"),
    "avif alpha": written("AVIF", "RGBA"),
    "gif": written("GIF", "P"),
    "bmp": written("BMP", "RGB"),
    "jpeg cmyk": written("JPEG", "CMYK"),
    **{f"png orientation {n}": oriented(n, "PNG") for n in range(1, 9)},
    **{f"jpeg orientation {n}": oriented(n, "JPEG") for n in range(1, 9)},
    "tiff orientation": oriented(6, "TIFF"),
}


@pytest.mark.parametrize("stripe", [5 * WIDTH, 10])
@pytest.mark.parametrize("name", FILES)
def test_stripes_give_the_same_pixels_as_the_whole(
    name: str, stripe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = decoded(FILES[name])
    monkeypatch.setattr(stripes, "STRIPE", stripe)
    in_stripes = decoded(FILES[name])
    assert in_stripes.shape == whole.shape
    assert np.array_equal(in_stripes, whole)


@pytest.mark.parametrize("name", ["png RGB", "png orientation 6", "webp", "avif", "tiff CMYK"])
def test_a_large_image_is_written_into_the_array_it_was_given(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stripes, "STRIPE", 5 * WIDTH)
    given: list[Pixels] = []

    def new(shape: tuple[int, int, int]) -> Pixels:
        given.append(np.empty(shape, np.uint8))
        return given[-1]

    assert decoded(FILES[name], new) is given[-1]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_jpeg_is_decoded_or_turned_into_the_array_it_was_given(orientation: int) -> None:
    given: list[Pixels] = []

    def new(shape: tuple[int, int, int]) -> Pixels:
        given.append(np.empty(shape, np.uint8))
        return given[-1]

    assert decoded(oriented(orientation, "JPEG"), new) is given[-1]


def test_the_array_of_a_failed_attempt_is_let_go_before_pillow_decodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_arguments: object, **_options: object) -> None:
        raise ValueError

    monkeypatch.setattr(simplejpeg, "decode_jpeg", refused)
    asked: list[tuple[int, int, int]] = []

    def new(shape: tuple[int, int, int]) -> Pixels:
        asked.append(shape)
        return np.empty(shape, np.uint8)

    decoded(oriented(1, "JPEG"), new)
    assert asked[:2] == [(HEIGHT, WIDTH, 3), (1, 1, 1)]
