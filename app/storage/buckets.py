"""Objects in buckets of S3, Google Cloud Storage and Azure, by obstore.

Endpoints and credentials are those of the server's environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`):
no client can choose them. Keys and error texts of stores never reach a client's shell or logs
unshortened.
"""

import logging
import re
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from app.storage.local_files import PIECE, too_large
from app.storage.location import Location
from models.domain.errors import InternalError, NotFound, OriginFailed

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

T = TypeVar("T")

log = logging.getLogger("darkroom.storage")

AT_ONCE = 1000
"""Objects of one page of a listing: the most that S3 sends."""

MISSING = (
    "s3://, gs:// and az:// need the package obstore: install Darkroom with its extra `storage` "
    "(pip install '.[storage]' in its checkout)"
)

_RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}


def installed() -> bool:
    """Return whether obstore can be imported, without importing it."""
    return find_spec("obstore") is not None


async def pieces(location: Location, limit: int) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of an object; raise NotFound, TooLarge for a large one, and OriginFailed."""
    store = _connected(location)
    import obstore

    with _explained(location):
        reply = await obstore.get_async(store, location.key)
    if (size := reply.meta["size"]) > limit:
        raise too_large(location, size, limit)
    stream = reply.stream(min_chunk_size=PIECE).__aiter__()
    while (piece := await _step(location, stream)) is not None:
        yield bytes(piece)


async def write(location: Location, content: bytes | AsyncIterable[bytes]) -> None:
    """Make or replace an object completely or not at all, in several parts if it is large."""
    store = _connected(location)
    import obstore

    with _explained(location):
        await obstore.put_async(store, location.key, content)


async def entries(location: Location) -> AsyncGenerator[str, None]:
    """Yield the names of objects below a prefix in the store's order, a page at a time.

    Objects of names that begin with a dot, and objects that mark folders, are left out. Raises
    OriginFailed, and InternalError without obstore.
    """
    pages = _pages(location)
    while (page := await _step(location, pages)) is not None:
        for each in _listed(location, page):
            if "/." not in f"/{each}":
                yield each


def names_below(location: Location) -> Iterator[str]:
    """Yield the names of all objects below a prefix, also of hidden ones; it blocks.

    Objects that mark folders are left out, and the errors are those of `entries`.
    """
    pages = _pages(location)
    while True:
        with _explained(location):
            page = next(pages, None)
        if page is None:
            return
        yield from _listed(location, page)


def _pages(location: Location) -> Any:
    """Return the pages of a listing, for `next` and for `anext`."""
    store = _connected(location)
    import obstore

    return obstore.list(store, location.key or None, chunk_size=AT_ONCE)


def _listed(location: Location, page: "Sequence[ObjectMeta]") -> Iterator[str]:
    """Yield the names of the objects of a page without markers of folders.

    A marker is an empty object whose name ends with a slash, which obstore takes away. So an empty
    object of a name without a dot is taken for a marker, also the object of the prefix itself.
    """
    for each in page:
        name = each["path"][len(location.key) + 1 :] if location.key else each["path"]
        if name and (each["size"] or "." in name.rpartition("/")[2]):
            yield name


async def _step(location: Location, source: AsyncIterator[T]) -> T | None:
    with _explained(location):
        return await anext(source, None)


def _connected(location: Location) -> "ObjectStore":
    """Return the client of a bucket, made at its first use and kept; raises InternalError."""
    if not installed():
        raise InternalError(MISSING)
    with _explained(location):
        return _store(location.scheme, location.bucket)


@cache
def _store(scheme: str, bucket: str) -> "ObjectStore":
    from obstore import store

    kinds: dict[str, Any] = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
    made: ObjectStore = kinds[scheme](bucket, retry_config=_RETRIES)
    return made


@contextmanager
def _explained(location: Location) -> Iterator[None]:
    """Turn errors of obstore into errors that a client may read; log the cause."""
    from obstore.exceptions import (
        BaseError,
        InvalidPathError,
        PermissionDeniedError,
        UnauthenticatedError,
    )

    try:
        yield
    except FileNotFoundError:
        raise NotFound(f"{location}: there is no such object") from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        _note(location, error)
        raise OriginFailed(f"{location.root} refuses the server's credentials") from None
    except InvalidPathError:
        text = "has a key with empty parts, `.`, `..` or control characters below it"
        raise OriginFailed(f"{location} {text}; choose a deeper prefix") from None
    except (BaseError, ValueError) as error:
        _note(location, error)
        raise OriginFailed(f"{location.root} failed; the server's log has the cause") from None


def _note(location: Location, error: Exception) -> None:
    """Log the first line of an error without queries of URLs, which may carry signatures."""
    first = str(error).split("\n", 1)[0][:500]
    log.warning("%s: %s", location.root, re.sub(r"\?[^\s]*", "?…", first))
