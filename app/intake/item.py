"""One image of a request as intake finds it."""

from dataclasses import dataclass
from typing import Any

from app.intake.spool import Blob
from app.urls import MAX_URL
from models.domain.errors import MalformedRequest, ServiceError, TooLarge
from models.settings import Settings


@dataclass(frozen=True, slots=True)
class Url:
    """The address of an image that has to be fetched."""

    url: str


@dataclass(frozen=True, slots=True)
class Item:
    """One image of a request: its place, its content, the client's file name or URL, and its id."""

    index: int
    content: Blob | Url | ServiceError
    source: str | None = None
    id: str | None = None


Found = tuple[Blob | Url | ServiceError, str | None, str | None]
"""Content, source (file name or URL) and the client's id of an image."""

Options = list[tuple[str, Any]]
"""Names and values in the order of the request."""


def shown_url(url: str | None) -> str | None:
    """Return a URL as the source in a record, cut if it is too long to be fetched."""
    return url if url is None or len(url) <= MAX_URL else url[:200] + "…"


def check_count(count: int, settings: Settings, parts: int = 1) -> None:
    """Raise MalformedRequest for a request without an image, TooLarge for one with too many.

    Each part of an image (its labels, a version) counts as an image.
    """
    if count == 0:
        raise MalformedRequest("no image: send `files` or `urls`, or `images` in JSON")
    if count * parts > (most := settings.max_images_per_request):
        each = f" with {parts} labels or versions each" if parts > 1 else ""
        raise TooLarge(
            f"at least {count} images{each}; one request takes {most} "
            "(DARKROOM_MAX_IMAGES_PER_REQUEST), send several or POST /jobs"
        )
