"""The limits of admission as values, and the rule for one client's part of a limit."""

from dataclasses import dataclass

from models.settings import Settings

SHARE = 15
"""One client may hold this many times what is free, once others want something: so a single one
gets at most 15/16 of a limit, two get 15/31 each, and there is always something free for one more
(dynamic thresholds: Choudhury and Hahne, 1998, https://doi.org/10.1109/90.664262)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be in flight over all front ends; 0 for a client: no cap of its own."""

    images: int
    bytes: int
    arriving: int
    client_images: int = 0
    client_bytes: int = 0

    @classmethod
    def from_settings(cls, settings: Settings) -> "Limits":
        """The limits an operator chose."""
        return cls(
            settings.max_images_in_flight,
            settings.max_bytes_in_flight,
            settings.max_arriving_bytes,
            settings.max_images_per_client,
            settings.max_bytes_per_client,
        )


@dataclass(frozen=True, slots=True)
class Amount:
    """Images and upload bytes."""

    images: int
    bytes: int

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.images + other.images, self.bytes + other.bytes)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.images - other.images, self.bytes - other.bytes)


def within_share(own: int, others: int, limit: int, contended: bool) -> bool:
    """Whether a client may hold `own` of a limit, of which others hold `others`.

    `own` includes what is asked for now. While no other client holds anything, and none was
    refused lately (`contended`), one client may hold the whole limit.
    """
    if not others and not contended:
        return True
    return own <= SHARE * max(0, limit - others - own + 1)
