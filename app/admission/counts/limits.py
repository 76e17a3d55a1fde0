"""Define the limits of admission as values, and the rule for one client's share of a limit."""

from dataclasses import dataclass

from models.domain.errors import TooLarge
from models.settings import Settings

SHARE = 15
"""One client may hold this many times the free part of a limit, once others want something. So a
single client gets at most 15/16 of the limit, two get 15/31 each, and a part is always free for one
more (dynamic thresholds: Choudhury and Hahne, 1998, https://doi.org/10.1109/90.664262)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be in flight over all front ends; for a client 0 means no limit of its own."""

    images: int
    bytes: int
    arriving: int
    client_images: int = 0
    client_bytes: int = 0

    @classmethod
    def from_settings(cls, settings: Settings) -> "Limits":
        """Return the limits of the settings."""
        return cls(
            settings.max_images_in_flight,
            settings.max_bytes_in_flight,
            settings.max_arriving_bytes,
            settings.max_images_per_client,
            settings.max_bytes_per_client,
        )

    def fits(self, amount: "Amount") -> None:
        """Raise TooLarge if even an idle server could not admit `amount`."""
        images, setting = self.images, "DARKROOM_MAX_IMAGES_IN_FLIGHT"
        if self.client_images and self.client_images < images:
            images, setting = self.client_images, "DARKROOM_MAX_IMAGES_PER_CLIENT"
        if amount.images > images or amount.bytes > self.bytes:
            raise TooLarge(
                f"{amount.images} images ({amount.bytes} bytes) never fit: the server holds "
                f"{images} images ({setting}) and {self.bytes} bytes "
                "(DARKROOM_MAX_BYTES_IN_FLIGHT); send smaller requests"
            )


@dataclass(frozen=True, slots=True)
class Amount:
    """Numbers of images and of upload bytes."""

    images: int
    bytes: int

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.images + other.images, self.bytes + other.bytes)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.images - other.images, self.bytes - other.bytes)


def within_share(own: int, others: int, limit: int, contended: bool) -> bool:
    """Return whether a client may hold `own` of a limit, of which others hold `others`.

    `own` includes the amount that is requested now. While no other client holds anything, and none
    was refused recently (`contended`), one client may hold the whole limit.
    """
    if not others and not contended:
        return True
    return own <= SHARE * max(0, limit - others - own + 1)
