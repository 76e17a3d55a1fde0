"""Drawings that the bundled network recognises: three of its ten classes, without any file to
license.

`python -m tests.drawn_classes FOLDER` writes them as JPEGs, to try a server with.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

Colour = tuple[int, int, int]


def golf_ball() -> Image.Image:
    """Draw a dimpled sphere on grass."""
    width, height, radius = 320, 240, 80
    y, x = np.mgrid[:height, :width]
    x, y = (x - width / 2) / radius, (y - height / 2) / radius
    z = np.sqrt(np.clip(1 - x * x - y * y, 0, 1))
    latitude, longitude = np.arcsin(np.clip(y, -1, 1)), np.arctan2(x, z)
    row = np.round(latitude / 0.2)
    step = 0.22 / np.maximum(np.cos(row * 0.2), 0.15)
    column = np.round(longitude / step - row % 2 / 2) + row % 2 / 2
    across, down = (longitude - column * step) * np.cos(row * 0.2), latitude - row * 0.2
    dimple = np.hypot(across, down) < 0.085
    slope = np.stack((x - 7 * across * dimple, y - 7 * down * dimple, z))
    light = np.tensordot((-0.45, -0.6, 0.66), slope, 1) / np.linalg.norm(slope, axis=0)
    grass = np.array((60, 120, 40)) + np.random.default_rng(0).normal(0, 16, (height, width, 1))
    shadow = np.hypot((x - 0.15) / 1.05, (y - 0.85) / 0.35) < 1
    ground = grass * np.where(shadow, 0.5, 1)[..., None]
    ball = (60 + 190 * np.clip(light, 0, 1))[..., None]
    return _photo(np.where((z > 0)[..., None], ball, ground))


def parachute() -> Image.Image:
    """Draw a striped canopy with its lines and a person below, in the sky."""
    image = _sky(320, 320, (70, 130, 210), (170, 205, 240))
    draw = ImageDraw.Draw(image)
    centre, rim, radius, hook = 160, 134, 106, (160, 256)
    colours = ((220, 40, 40), (245, 245, 240), (30, 70, 180), (250, 200, 40))
    edges = centre + radius * np.cos(np.pi * (1 + np.arange(10) / 9))
    turn = np.linspace(0, np.pi / 2, 12)
    seams = [
        [(centre + (e - centre) * np.sin(t), rim - 0.8 * radius * np.cos(t)) for t in turn]
        for e in edges
    ]
    for n in range(9):
        scallop = ((edges[n] + edges[n + 1]) / 2, rim + 8)
        draw.polygon([*seams[n], scallop, *reversed(seams[n + 1])], fill=colours[n % 4])
    for edge in edges:
        draw.line([(edge, rim), hook], fill=(60, 60, 60))
    draw.ellipse((154, 250, 166, 262), fill=(40, 30, 30))
    draw.rectangle((153, 261, 167, 284), fill=(50, 40, 60))
    for foot in (153, 168):
        draw.line([(160, 284), (foot, 306)], fill=(30, 30, 30), width=5)
    return _photo(image)


def church() -> Image.Image:
    """Draw a nave and a steeple with a cross."""
    image = _sky(320, 320, (90, 140, 200), (200, 215, 230))
    draw = ImageDraw.Draw(image)
    glass, roof = (60, 70, 110), (90, 80, 90)
    draw.rectangle((0, 270, 320, 320), fill=(90, 120, 60))
    draw.rectangle((110, 150, 270, 275), fill=(225, 215, 195))
    draw.polygon([(100, 152), (190, 95), (280, 152)], fill=(120, 60, 50))
    draw.rectangle((60, 90, 120, 275), fill=(235, 228, 210))
    draw.polygon([(52, 92), (90, 20), (128, 92)], fill=roof)
    draw.line([(90, 20), (90, 2)], fill=roof, width=3)
    draw.line([(84, 8), (96, 8)], fill=roof, width=3)
    for x in (140, 180, 220):
        _arch(draw, (x, 185, x + 18, 235), glass)
    _arch(draw, (78, 225, 102, 275), (90, 50, 30))
    draw.ellipse((80, 110, 100, 130), fill=(250, 250, 245), outline=(60, 60, 60))
    draw.rectangle((82, 150, 98, 180), fill=glass)
    return _photo(image)


DRAWN = {
    "golf ball": golf_ball,
    "parachute": parachute,
    "church": church,
}
"""The drawings by the label that the network should give them."""


def _sky(width: int, height: int, top: Colour, bottom: Colour) -> Image.Image:
    share = np.linspace(0, 1, height)[:, None, None]
    sky = np.array(top) * (1 - share) + np.array(bottom) * share
    return Image.fromarray(np.repeat(sky, width, 1).astype(np.uint8))


def _arch(draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int], fill: Colour) -> None:
    left, top, right, _ = box
    draw.rectangle(box, fill=fill)
    draw.pieslice((left, top - 10, right, top + 10), 180, 360, fill=fill)


def _photo(image: Image.Image | np.ndarray) -> Image.Image:
    """Add the softness and the grain of a lens and a sensor."""
    pixels = np.asarray(image, np.float64)
    pixels = pixels + np.random.default_rng(1).normal(0, 4, pixels.shape[:2])[..., None]
    blurred = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    return blurred.filter(ImageFilter.GaussianBlur(0.7))


if __name__ == "__main__":
    for label, draw in DRAWN.items():
        draw().save(Path(sys.argv[1]) / f"{label.replace(' ', '_')}.jpg", quality=92)
