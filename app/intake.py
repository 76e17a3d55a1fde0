"""The images of one request, in order: raw body, multipart or JSON; each content or an error.

Fetches and decodes nothing: URLs stay URLs, files stay blobs.
"""

import asyncio
import base64
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from pydantic import ValidationError

from app import form
from app.admission import Permit
from app.body import announced
from app.problems import invalid
from app.spool import Blob, Spool
from models.errors import (
    FieldError,
    InvalidParameter,
    MalformedRequest,
    ServiceError,
    TooLarge,
    UnsupportedMedia,
)
from models.schemas import JsonImages
from models.settings import Settings


@dataclass(frozen=True, slots=True)
class Url:
    """An image still to be fetched."""

    url: str


@dataclass(frozen=True, slots=True)
class Item:
    """One image of a request: where it stands, what the client calls it, what it is."""

    index: int
    content: Blob | Url | ServiceError
    source: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Intake:
    """A request's images and options; `single` when it is about exactly one image."""

    items: tuple[Item, ...]
    options: dict[str, Any]

    @property
    def single(self) -> bool:
        """One image: its error is the request's error."""
        return len(self.items) == 1


async def collect(request: Request, permit: Permit, settings: Settings) -> Intake:
    """Read the request's body; `permit` grows by the images found. Raises ServiceError."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == "multipart/form-data":
        found, options = await _multipart(request, settings)
    elif kind == "application/json" or kind.endswith("+json"):
        found, options = await _json(request, settings)
    elif kind.startswith("image/") or kind == "application/octet-stream":
        found, options = [(await _raw(request, settings), None, None)], []
    else:
        raise UnsupportedMedia(
            f"Content-Type is {kind or 'missing'}; send an image as image/* or "
            "application/octet-stream, or images as multipart/form-data or application/json"
        )
    _check_count(len(found), settings)
    permit.grow(len(found) - 1, 0)
    items = (Item(n, content, source, id_) for n, (content, source, id_) in enumerate(found))
    return Intake(tuple(items), _once([*request.query_params.multi_items(), *options]))


Options = list[tuple[str, Any]]
"""Name and value, as they come."""

Found = tuple[Blob | Url | ServiceError, str | None, str | None]
"""Content, source and the client's id."""


def _check_count(count: int, settings: Settings) -> None:
    if count == 0:
        raise MalformedRequest("no image: send `files` or `urls`, or `images` in JSON")
    if count > settings.max_images_per_request:
        raise TooLarge(
            f"{count} images; one request takes {settings.max_images_per_request} "
            "(DARKROOM_MAX_IMAGES_PER_REQUEST), send several"
        )


def _once(options: Options) -> dict[str, Any]:
    """By name; one that is given twice, in the query and the body perhaps, is not guessed at."""
    known: dict[str, Any] = {}
    for name, value in options:
        if name in known:
            wrong = FieldError(name, "given more than once", value)
            raise InvalidParameter(f"{name}: {wrong.message}", [wrong])
        known[name] = value
    return known


async def _raw(request: Request, settings: Settings) -> Blob:
    async with Spool(settings.max_image_bytes, settings.spool_bytes) as spool:
        spool.expect(announced(request))
        async for chunk in request.stream():
            await spool.write(chunk)
        return await spool.finish()


async def _multipart(request: Request, settings: Settings) -> tuple[list[Found], Options]:
    found: list[Found] = []
    options: Options = []
    async for part in form.parts(request, settings):
        if isinstance(part, form.File):
            if part.name not in form.FILES:
                wrong = FieldError(part.name, "files are sent as `files` or `file`")
                raise InvalidParameter(f"unknown file field {part.name!r}", [wrong])
            found.append((part.content, part.filename, None))
        elif part.name == "urls":
            found.append((Url(part.text), part.text, None))
        else:
            options.append((part.name, part.text))
    return found, options


async def _json(request: Request, settings: Settings) -> tuple[list[Found], Options]:
    body = await request.body()
    try:
        parsed = await asyncio.to_thread(JsonImages.model_validate_json, body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        if details[0]["type"] == "json_invalid":
            raise MalformedRequest("the body is not valid JSON") from None
        raise invalid(details) from None
    _check_count(len(parsed.images) + len(parsed.urls), settings)
    found: list[Found] = []
    for index, image in enumerate(parsed.images):
        if (image.url is None) == (image.data is None):
            wrong = FieldError(f"images[{index}]", "exactly one of `url` and `data` is needed")
            raise InvalidParameter(f"{wrong.path}: {wrong.message}", [wrong])
        if image.url is not None:
            found.append((Url(image.url), image.url, image.id))
        else:
            found.append((await _data_uri(image.data or "", settings), None, image.id))
    found.extend((Url(url), url, None) for url in parsed.urls)
    return found, [*(parsed.model_extra or {}).items()]


async def _data_uri(uri: str, settings: Settings) -> Blob | ServiceError:
    """The bytes of `data:image/…;base64,…` (RFC 2397), or what is wrong with it."""
    head, comma, body = uri.partition(",")
    if not (comma and head.lower().startswith("data:") and head.lower().endswith(";base64")):
        return MalformedRequest("not a data URI of the form data:image/…;base64,…")
    async with Spool(settings.max_image_bytes, settings.spool_bytes) as spool:
        try:
            spool.expect(len(body) * 3 // 4 - body[-2:].count("="))
            await spool.write(base64.b64decode(body, validate=True))
        except TooLarge as error:
            return error.with_traceback(None)
        except ValueError:
            return MalformedRequest("the data URI is not valid base64")
        return await spool.finish()
