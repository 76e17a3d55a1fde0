"""Decode image files in processes that can be killed, sandboxed and replaced.

Start reading at `pool.py`, then `child.py`, which runs inside these processes.
It may import `models`, msgspec and numpy, and nothing else of `app`.
"""

from app.decoders.memory import LARGE_FILE, SMALL, opening_bytes
from app.decoders.messages import Bounds, Encode, Seen, Wanted
from app.decoders.pool import ENCODE_SECONDS, EXPENSIVE, DecoderLimits, DecoderPool

__all__ = [
    "ENCODE_SECONDS",
    "EXPENSIVE",
    "LARGE_FILE",
    "SMALL",
    "Bounds",
    "DecoderLimits",
    "DecoderPool",
    "Encode",
    "Seen",
    "Wanted",
    "opening_bytes",
]
