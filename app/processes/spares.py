"""Decide how many spare workers a server keeps."""

from app.system.memory import usable_memory
from models.settings import Settings

ENOUGH_FOR_A_SPARE = 4 << 30
"""Bytes of memory from which a server keeps a spare worker by default."""


def spares(settings: Settings) -> int:
    """Return the number of spare workers of each pool.

    A spare takes about 0.5 GB of memory, and on a GPU 3 GB of the device's: little beside what a
    server with a worker of its own has, and the price of an outage of seconds at every crash.
    """
    if settings.spare_workers != "auto":
        return int(settings.spare_workers)
    return int(usable_memory() >= ENOUGH_FOR_A_SPARE)
