"""Read the files of the page: each is kept in memory with its media type and its ETag.

There is no build step: what lies in `static/` is what browsers get. Only `index.html` is completed,
by the forms that work without a script.
"""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "static"

INDEX = "index.html"

_FORMS = "<!--FORMS-->"
"""The place of the forms in the HTML."""

_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".jpg": "image/jpeg",
}

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "require-trusted-types-for 'script'",
    )
)
"""The Content-Security-Policy: nothing is loaded from elsewhere, no script stands in the HTML, and
scripts cannot turn text into markup."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is sent."""

    body: bytes
    media_type: str
    etag: str


@functools.cache
def files() -> Mapping[str, PageFile]:
    """Return the files by name."""
    return {
        path.name: page_file(path.read_bytes(), path.suffix)
        for path in sorted(FOLDER.iterdir())
        if path.suffix in _MEDIA_TYPES
    }


def page_file(body: bytes, suffix: str) -> PageFile:
    """Return a body with the media type of its suffix and a strong ETag of its content."""
    digest = hashlib.sha256(body).hexdigest()[:32]
    return PageFile(body, _MEDIA_TYPES[suffix], f'"{digest}"')


def index(forms: str) -> PageFile:
    """Return the HTML with `forms`, which browsers show where scripts are switched off."""
    return page_file(files()[INDEX].body.replace(_FORMS.encode(), forms.encode()), ".html")
