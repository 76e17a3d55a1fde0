"""Render the photograph of the README's strip: a parachute above mountains, without any file to
license.

All of it is computed: clouds and ridges from noise, haze by distance, light on the canopy.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Plane = NDArray[np.float64]

WIDTH, HEIGHT = 480, 360
"""Size of the photograph, in pixels."""

FINE = 3
"""Rendered pixels for each pixel of the photograph, in both directions."""

RIDGES = ((0.62, 0.10, 3), (0.70, 0.13, 5), (0.80, 0.12, 8))
"""Ridges from the farthest on: height of the foot and of the peaks, as shares, and a seed."""

COLOURS = ((222, 44, 38), (250, 246, 236), (26, 74, 178), (252, 200, 40))
"""Colours of the canopy's gores, RGB."""


def photograph() -> Image.Image:
    """Render the photograph: RGB, the same pixels each time."""
    sky = _sky()
    for number, (foot, peak, seed) in enumerate(RIDGES):
        sky = _ridge(sky, foot, peak, seed, 1 - number / len(RIDGES))
    image = Image.fromarray(np.clip(sky, 0, 255).astype(np.uint8))
    _parachute(image)
    small = image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    grain = np.random.default_rng(1).normal(0, 2.5, (HEIGHT, WIDTH, 1))
    return Image.fromarray(np.clip(np.asarray(small) + grain, 0, 255).astype(np.uint8))


def _noise(height: int, width: int, cells: int, seed: int, roughness: float = 0.5) -> Plane:
    """Return fractal noise between 0 and 1: a sum of octaves of smooth noise, float64 (H, W)."""
    random, total, weight = np.random.default_rng(seed), np.zeros((height, width)), 1.0
    while cells < max(height, width) // 2:
        rows = max(2, cells * height // width)
        coarse = Image.fromarray(random.random((rows, cells)).astype(np.float32))
        total += weight * np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))
        cells, weight = cells * 2, weight * roughness
    low, high = total.min(), total.max()
    return np.asarray((total - low) / (high - low))


def _sky() -> NDArray[np.float64]:
    """Return the sky with a low sun and clouds, float64 (H, W, 3)."""
    height, width = HEIGHT * FINE, WIDTH * FINE
    y, x = np.mgrid[:height, :width] / height
    down = np.clip(y / 0.7, 0, 1)[..., None]
    sky = np.array((46, 106, 190)) * (1 - down) + np.array((240, 214, 186)) * down
    sun = np.exp(-(((x - 1.12) / 0.5) ** 2 + ((y - 0.56) / 0.34) ** 2))[..., None]
    sky = sky + sun * np.array((60, 34, -30))
    stretched = _noise(height * 2, width, 5, 11)[::2]
    cover = (
        np.clip((stretched - 0.55) * 3.2, 0, 1)[..., None]
        * np.clip(1.2 - y / 0.75, 0, 1)[..., None]
    )
    lit = np.array((255, 250, 242)) - 26 * _noise(height, width, 9, 12)[..., None]
    return np.asarray(sky * (1 - 0.86 * cover) + lit * 0.86 * cover)


def _ridge(
    behind: NDArray[np.float64], foot: float, peak: float, seed: int, far: float
) -> NDArray[np.float64]:
    """Put a ridge before a picture; `far` is 1 for one in full haze and 0 for the nearest."""
    height, width = behind.shape[:2]
    line = _noise(2, width, 4 + 2 * seed % 7, seed, 0.55)[0]
    top = (foot + peak * (0.5 - line)) * height
    y = np.arange(height)[:, None]
    inside = np.clip(y - top[None] + 0.5, 0, 1)[..., None]
    rock = _noise(height, width, 24, seed + 40, 0.7)[..., None]
    deep = np.clip((y - top[None]) / (0.3 * height), 0, 1)[..., None]
    near = np.array((58, 92, 50)) * (0.65 + 0.7 * rock) * (1 - 0.25 * deep)
    haze = np.array((168, 178, 200)) - 40 * (1 - deep) * far
    return np.asarray(behind * (1 - inside) + (near * (1 - far) + haze * far) * inside)


def _parachute(image: Image.Image) -> None:
    """Draw the canopy, lit from the right, its lines and the person below."""
    scale = HEIGHT * FINE / 360
    centre, rim, radius, hook = 232 * scale, 142 * scale, 112 * scale, (232 * scale, 262 * scale)
    draw = ImageDraw.Draw(image)
    edges = centre + radius * np.cos(np.pi * (1 + np.arange(10) / 9))
    for edge in edges:
        draw.line([(edge, rim), hook], fill=(70, 66, 66), width=round(scale * 0.9))
    _canopy(image, centre, rim, radius, edges)
    x, y = hook
    for left, top, right, bottom in ((-5, -8, 5, 3), (-6, 3, 6, 24)):
        draw.ellipse(
            (x + left * scale, y + top * scale, x + right * scale, y + bottom * scale),
            fill=(46, 36, 40),
        )
    for foot in (-7, 6):
        draw.line(
            [(x, y + 20 * scale), (x + foot * scale, y + 46 * scale)],
            fill=(40, 36, 44),
            width=round(4 * scale),
        )


def _canopy(image: Image.Image, centre: float, rim: float, radius: float, edges: Plane) -> None:
    """Paint the gores between the edges, with light by the direction of the cloth."""
    turn = np.linspace(0, np.pi / 2, 40)
    flat, mask = Image.new("RGB", image.size), Image.new("L", image.size)
    painter, cutter = ImageDraw.Draw(flat), ImageDraw.Draw(mask)
    seams = [
        [(centre + (e - centre) * np.sin(t), rim - 0.8 * radius * np.cos(t)) for t in turn]
        for e in edges
    ]
    for number in range(9):
        scallop = ((edges[number] + edges[number + 1]) / 2, rim + 9 * FINE)
        gore = [*seams[number], scallop, *reversed(seams[number + 1])]
        painter.polygon(gore, fill=COLOURS[number % 4])
        cutter.polygon(gore, fill=255)
    y, x = np.mgrid[: image.height, : image.width]
    across, up = (x - centre) / radius, (rim - y) / (0.8 * radius)
    out = np.sqrt(np.clip(1 - across**2 - up**2, 0, 1))
    gores = 0.07 * np.cos(
        9 * np.arccos(np.clip(across / np.sqrt(np.clip(1 - up**2, 1e-3, 1)), -1, 1))
    )
    light = np.clip(0.62 + 0.3 * across + 0.26 * up + 0.18 * out - gores, 0.3, 1.15)[..., None]
    lit = Image.fromarray(np.clip(np.asarray(flat) * light, 0, 255).astype(np.uint8))
    image.paste(lit, mask=mask.filter(ImageFilter.GaussianBlur(1)))
