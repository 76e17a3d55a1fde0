"""Bounds of what an archive may contain, and the errors that name them."""

from dataclasses import dataclass, field
from threading import Event

from models.domain.errors import BadArchive, TooLarge

XZ_MEMORY = 66 << 20
"""Bytes of memory that an .xz may ask for; those of `xz -9` take 65 MiB."""

XZ_MEMORY_OF_REQUESTS = 9 << 20
"""The same in a request; those of `xz -6`, which is what `xz` does by default, take 8.1 MiB."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Largest number of members, and of bytes that they may unpack to.

    An archive may unpack to `ratio` times its own size; one that unpacks to at most `free` bytes
    is accepted whatever its ratio. Deflate reaches 1032 to 1, photos about 1 to 1. An .xz may take
    `memory` bytes to be decompressed; it states how many. Once another thread has set `stop`, every
    check raises BadArchive: the request has ended.
    """

    members: int = 1_000_000
    ratio: int = 100
    free: int = 256 << 20
    memory: int = XZ_MEMORY
    stop: Event = field(default_factory=Event)

    def check_count(self, count: int) -> None:
        """Raise BadArchive for more entries than an archive may have."""
        self.check_stop()
        if count > self.members:
            raise BadArchive(
                f"the archive has more than {self.members} entries; send several archives"
            )

    def expansion(self, packed: int) -> int:
        """Return the number of bytes that an archive of `packed` bytes may unpack to."""
        return max(self.free, self.ratio * packed)

    def check_expansion(self, unpacked: int, packed: int) -> None:
        """Raise BadArchive if an archive unpacks to far more bytes than it has."""
        self.check_stop()
        if unpacked > self.expansion(packed):
            raise BadArchive(
                f"the archive has {packed} bytes and unpacks to more than "
                f"{self.expansion(packed)}; at most {self.ratio} times its size is allowed"
            )

    def check_stop(self) -> None:
        """Raise BadArchive once `stop` is set."""
        if self.stop.is_set():
            raise BadArchive("reading the archive was stopped, because its request has ended")


def check_size(size: int, limit: int) -> None:
    """Raise TooLarge if a member of `size` bytes is over the limit of one image."""
    if size > limit:
        raise TooLarge(
            f"the image has {size} bytes; one has at most {limit} (DARKROOM_MAX_IMAGE_BYTES)"
        )
