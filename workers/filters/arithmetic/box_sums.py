"""Parameters of sums over squares, packed as the kernels of several families read them."""

import struct


def device_box(radius: int) -> bytes:
    """Return `struct Box`: the radius, the area of the square, and a 64-bit reciprocal, 16 bytes.

    The reciprocal is floor(2**64 / (2 · area)) + 1. The high 64 bits of its product with a number
    are that number divided by 2 · area, exactly for all sums that occur: division by an invariant
    integer by multiplication (T. Granlund, P. Montgomery, 1994, theorem 4.2).
    """
    area = (2 * radius + 1) ** 2
    return struct.pack("<2iQ", radius, area, (1 << 64) // (2 * area) + 1)
