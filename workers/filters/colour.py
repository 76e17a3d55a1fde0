"""The common rules of filters on colour: alpha stays, blending truncates as Pillow's does."""

import numpy as np
from numpy.typing import NDArray

from models.image import Pixels


def split_alpha(pixels: Pixels) -> tuple[Pixels, Pixels | None]:
    """The colour planes and the alpha plane (H, W, 1), None without one."""
    return (pixels[:, :, :3], pixels[:, :, 3:]) if pixels.shape[2] == 4 else (pixels, None)


def join_alpha(colour: Pixels, alpha: Pixels | None) -> Pixels:
    """The reverse of `split_alpha`, C-contiguous."""
    return np.ascontiguousarray(colour if alpha is None else np.concatenate((colour, alpha), 2))


def blend(degenerate: NDArray[np.uint8] | int, pixels: Pixels, factor: float) -> Pixels:
    """Pillow's `Image.blend`: clip(trunc(d + f · (x - d))) in float32."""
    base = np.asarray(degenerate, np.float32)
    mixed = base + np.float32(factor) * (pixels.astype(np.float32) - base)
    return np.clip(np.trunc(mixed), 0, 255).astype(np.uint8)
