"""Parameters of running sums over squares, as kernels of several families take them."""

import struct


def device_box(radius: int) -> bytes:
    """The radius, the square's area, and what a multiplication divides by twice the area."""
    area = (2 * radius + 1) ** 2
    return struct.pack("<2iQ", radius, area, (1 << 64) // (2 * area) + 1)
