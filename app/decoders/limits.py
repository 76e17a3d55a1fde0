"""Limits of the decoder processes of a service, and whether this system supports them."""

import os
import signal
import sys
from dataclasses import dataclass

from models.settings import Settings


@dataclass(frozen=True, slots=True)
class Limits:
    """The number of processes, and the limits of one image: pixels, bytes of its file, seconds of
    CPU time, and estimated bytes of memory.

    Without processes, threads of the caller decode.
    """

    processes: int
    max_pixels: int
    max_file: int
    seconds: float
    encode_seconds: float = 60.0
    decode_memory: int = 256 << 20
    encode_memory: int = 286 << 20

    @classmethod
    def from_settings(cls, settings: Settings, cores: int) -> "Limits":
        """Return the limits by the settings; the default is one process a core, and at least
        two.
        """
        auto = settings.decoders == "auto"
        return cls(
            max(2, cores) if auto else int(settings.decoders),
            settings.max_pixels,
            settings.max_image_bytes,
            settings.decode_timeout,
            settings.encode_timeout,
            settings.decode_memory,
            settings.encode_memory,
        )


def supported() -> bool:
    """Return whether this system has what the processes need; elsewhere threads decode."""
    needed = hasattr(os, "memfd_create") and hasattr(os, "pidfd_open")
    return sys.platform == "linux" and needed and hasattr(signal, "pidfd_send_signal")
