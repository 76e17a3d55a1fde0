"""Decode image files in processes that can be killed, sandboxed and replaced.

Start reading at `pool.py`, then `child/decoder.py`, which is what runs inside such a process.
It may import `models`, msgspec and numpy, and nothing else of `app`.
"""

from app.decoders.exchange import Seen, Unasked
from app.decoders.frames import Encode
from app.decoders.memory import LARGE_FILE, opening_bytes
from app.decoders.pool import DecoderPool, Limits
from app.decoders.queues import EXPENSIVE

__all__ = [
    "EXPENSIVE",
    "LARGE_FILE",
    "DecoderPool",
    "Encode",
    "Limits",
    "Seen",
    "Unasked",
    "opening_bytes",
]
