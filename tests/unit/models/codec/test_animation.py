"""Animations: frames as Pillow composes them, and files that play the frames that were written."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from models.codec import Encoding, ImageFormat, encode, open_file
from models.domain.errors import ServiceError, TooManyPixels, Undecodable
from models.domain.image import Image, Pixels
from tests.pictures import encoded

TIMES = [50, 80, 110, 140]
SOURCES = [("GIF", {}), ("GIF", {"disposal": 2}), ("PNG", {}), ("WEBP", {"lossless": True})]
OUTPUTS = [ImageFormat.GIF, ImageFormat.PNG, ImageFormat.WEBP]


def moving(format_: str, *, alpha: bool = False, **options: Any) -> bytes:
    """Return a file in which a square moves over a ground that may be transparent."""
    frames = []
    for number in range(len(TIMES)):
        pixels = np.zeros((30, 41, 4), np.uint8)
        pixels[..., 3] = 0 if alpha else 255
        pixels[5 + number : 15 + number, 3 * number + 1 :][:, :10] = (
            200 - 30 * number,
            40,
            90,
            255,
        )
        frames.append(Pillow.fromarray(pixels if alpha else pixels[..., :3].copy()))
    more = {"save_all": True, "append_images": frames[1:], "duration": TIMES, "loop": 3}
    return encoded(frames[0], format_, **more, **options)


def played(data: bytes) -> tuple[list[Pixels], list[float]]:
    """Return the frames in RGBA, black where they are transparent, and their times."""
    frames, times = [], []
    with Pillow.open(io.BytesIO(data)) as file:
        for number in range(file.n_frames):  # type: ignore[attr-defined]  # Pillow: of some formats
            file.seek(number)
            frames.append(visible(np.asarray(file.convert("RGBA"))))
            times.append(file.info["duration"])
    return frames, times


def visible(pixels: Pixels) -> Pixels:
    if pixels.shape[2] == 3:
        return np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)])
    return np.where(pixels[..., 3:] > 0, pixels, np.uint8(0))


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize(("format_", "options"), SOURCES)
def test_frames_are_read_and_played_as_pillow_composes_them(
    format_: str, options: dict[str, Any], alpha: bool
) -> None:
    data = moving(format_, alpha=alpha, **options)
    found = open_file(data, max_pixels=10**6, all_frames=True).decode()
    assert isinstance(found.image, Image)
    assert found.animation is not None
    wanted, _ = played(data)
    frames = found.image.pixels.reshape(4, 30, 41, -1)
    assert frames.shape[3] == (4 if alpha else 3)
    np.testing.assert_array_equal([visible(each) for each in frames], wanted)
    for output in OUTPUTS:
        kept = Encoding(lossless=output is ImageFormat.WEBP)
        again = encode(found.image, output, kept, animation=found.animation, copyright="© me")
        np.testing.assert_array_equal(played(again)[0], wanted)
        assert played(again)[1] == TIMES
        read = open_file(again, max_pixels=10**6, all_frames=True).decode().animation
        assert read == found.animation


@pytest.mark.parametrize(("format_", "options"), SOURCES)
def test_a_cut_animation_is_an_error(format_: str, options: dict[str, Any]) -> None:
    data = moving(format_, **options)
    end = len(data) - (12 if format_ == "PNG" else 0)  # IEND has no pixels
    for size in range(40, end, 7):
        with pytest.raises(Undecodable):
            open_file(data[:size], max_pixels=10**6, all_frames=True).decode()


def test_the_pixels_of_all_frames_are_bounded() -> None:
    data = moving("GIF")
    assert open_file(data, max_pixels=4 * 30 * 41, all_frames=True).info.stack == 4
    with pytest.raises(TooManyPixels, match="4 frames or more with 4,920 pixels"):
        open_file(data, max_pixels=4 * 30 * 41 - 1, all_frames=True)
    frame = data[data.rfind(b"!\xf9\x04") : -1]
    with pytest.raises(TooManyPixels, match="1,001 frames or more"):  # not all are counted
        open_file(data[:-1] + 5000 * frame + b";", max_pixels=10**9, all_frames=True)


def test_pages_of_a_tiff_are_no_frames() -> None:
    pages = [Pillow.new("RGB", (8, 8)), Pillow.new("RGB", (8, 8), "red")]
    data = encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    with pytest.raises(ServiceError, match="frames=first"):
        open_file(data, max_pixels=10**6, all_frames=True)


@pytest.mark.parametrize("colours", [2, 255, 256])
def test_a_gif_keeps_256_colours(colours: int) -> None:
    random = np.random.default_rng(colours)
    palette = random.choice(1 << 24, colours, replace=False)
    stored = palette[random.permutation(4096) % colours].reshape(64, 64)
    pixels = np.stack([stored >> 16, stored >> 8 & 255, stored & 255], axis=2).astype(np.uint8)
    frames, _ = played(encode(Image(pixels), ImageFormat.GIF))
    np.testing.assert_array_equal(frames[0][..., :3], pixels)
