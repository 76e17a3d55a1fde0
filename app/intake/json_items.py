"""Read the images and options of a JSON body, and the data URIs of the images.

A JSON body waits in a spool as any upload does. A long one is parsed on one thread for all
requests, from the text to the decoded images: parsers hold the interpreter's lock for milliseconds,
and with several such threads the event loop waited for all of them. One thread also means that one
body at a time is in memory with all its copies.
"""

import asyncio
import binascii
import re
from codecs import BOM_UTF8
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from starlette.types import Receive

from app.http.problems import read
from app.intake.body import spooled
from app.intake.item import Found, Options, Url, check_count, shown_url
from app.intake.spool import Blob, keep
from models.api.schemas import JsonImage, JsonImages
from models.domain.errors import (
    InvalidParameter,
    MalformedRequest,
    Overloaded,
    ServiceError,
    TooLarge,
)
from models.settings import Settings

T = TypeVar("T")

MOST_BYTES = 32 << 20
"""Largest JSON body, and largest line of a stream, in bytes."""

AT_ONCE = 1 << 13
"""Longest JSON, in bytes, that is parsed on the event loop: 0.1 ms, as long as to hand the JSON to
a thread."""

MOST_TOKENS, TOKENS_PER_IMAGE = 40_000, 64
"""Strings, brackets, colons and commas of one text, and how many more each image of a request may
have. A parser makes an object of every token: 30 MB of `[[],[],…]` became 1 GB. A chain of 32
filters with kernels of 31 × 31 weights has 33,000."""

_STRUCTURE = (b"[", b"]", b"{", b"}", b",", b":")

_THREAD = ThreadPoolExecutor(1, "parsing")
_WORDS = {
    "model_type": "Input should be an object",
    "list_type": "Input should be a valid array",
    "extra_forbidden": f"unknown key; an image has {', '.join(JsonImage.model_fields)}; leave the "
    "key out",
}
"""Messages of pydantic in the words of JSON."""

_BASE64 = re.compile(rb";\x20*base64[\x20\f]*$", re.IGNORECASE)
"""The end of a media type that says that the content is base64."""

_ESCAPES = re.compile(rb"(?:%[0-9A-Fa-f]{2})+")
"""Percent-encoded bytes. For 8 MiB of percent signs `urllib.parse` took 4.5 s, and this 0.4 s."""

_REMOVED_FROM_URLS, _WHITE_SPACE = b"\t\n\r", b"\t\n\f\r\x20"
_C0_AND_BLANK = bytes(range(0x21))


async def in_parsing_thread(function: Callable[..., T], *args: object) -> T:
    """Return the result of a function that parses; the thread takes one call at a time."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, function, *args)


async def whole_json(receive: Receive) -> Blob:
    """Return a JSON body; raises TooLarge over MOST_BYTES, and Overloaded."""
    refusal = TooLarge(
        f"a JSON body has at most {MOST_BYTES} bytes; send larger images as multipart/form-data"
    )
    return await spooled(receive, MOST_BYTES, refusal=refusal)


async def json_items(receive: Receive, settings: Settings) -> tuple[list[Found], Options]:
    """Read a JSON body; raises ServiceError."""
    body = await whole_json(receive)
    if body.size <= AT_ONCE:
        return _items(body, settings)
    return await in_parsing_thread(_items, body, settings)


async def json_line(line: Blob, settings: Settings) -> Found:
    """Read one image from a line of a stream; anything wrong with the line is its error."""
    if line.size <= AT_ONCE:
        return _of_line(line, settings)
    return await in_parsing_thread(_of_line, line, settings)


def parsed(body: Blob, images: int) -> Any:
    """Return the value of a JSON text, and close the text.

    `images` is the number of images that the text may have. Raises MalformedRequest, and TooLarge
    for too many tokens.
    """
    try:
        return _parsed(body.read().removeprefix(BOM_UTF8), images)
    except RecursionError:
        raise TooLarge("the JSON is nested too deeply") from None
    except ValueError:
        raise MalformedRequest("the body is not valid JSON") from None
    finally:
        body.close()


def parsed_json(text: str) -> object:
    """Parse an option that is JSON. The values can be written as JSON again, as in an error.

    Raises ValueError for text that is not JSON, half a surrogate pair, deep nesting, and more
    tokens than a chain or a list of versions can have.
    """
    try:
        return _parsed(text.encode(), 0)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ValueError(str(error).removeprefix("JSON is malformed: ")) from None
    except TooLarge as error:
        raise ValueError(error.detail) from None


def _parsed(text: bytes, images: int) -> Any:
    check_tokens(text.count(b'"') // 2 + sum(map(text.count, _STRUCTURE)), images)
    return msgspec.json.decode(text)


def check_tokens(n_tokens: int, images: int) -> None:
    """Raise TooLarge for too many tokens of a text that may have this number of images."""
    most = MOST_TOKENS + TOKENS_PER_IMAGE * images
    if n_tokens > most:
        raise TooLarge(
            f"the JSON has more than {most} strings, brackets, colons and commas; "
            "send several requests"
        )


def _items(body: Blob, settings: Settings) -> tuple[list[Found], Options]:
    given = read(JsonImages, parsed(body, settings.max_images_per_request), _WORDS)
    check_count(len(given.images) + len(given.urls), settings)
    found: list[Found] = [
        (_content(f"images[{index}]", image, settings), shown_url(image.url), image.id)
        for index, image in enumerate(given.images)
    ]
    found.extend((Url(url), shown_url(url), None) for url in given.urls)
    return found, [*(given.model_extra or {}).items()]


def _of_line(line: Blob, settings: Settings) -> Found:
    value: Any = None
    try:
        value = parsed(line, 1)
        image = read(JsonImage, value, _WORDS)
    except MalformedRequest:
        return MalformedRequest("the line is not valid JSON"), None, None
    except ServiceError as error:
        # The record has the id whatever else is wrong.
        wrong_id = not isinstance(value, dict) or any(each.path == "id" for each in error.errors)
        return error.with_traceback(None), None, None if wrong_id else value.get("id")
    content: Blob | Url | ServiceError
    try:
        content = _content("", image, settings)
    except (InvalidParameter, Overloaded) as error:
        content = error.with_traceback(None)
    return content, shown_url(image.url), image.id


def _content(path: str, image: JsonImage, settings: Settings) -> Blob | Url | ServiceError:
    """Return the content of an image that stands at `path` of a body, decoded if it is `data`.

    Raises InvalidParameter for an image without content or with two.
    """
    if (image.url is None) == (image.data is None):
        raise InvalidParameter.of(path, "exactly one of `url` and `data` is needed")
    if image.url is not None:
        return Url(image.url)
    try:
        return keep(from_data_uri(image.data or ""), settings.max_image_bytes)
    except (TooLarge, MalformedRequest) as error:
        return error.with_traceback(None)


def from_data_uri(uri: str) -> bytes:
    """Return the content of a data URI as browsers read it; raise MalformedRequest.

    Sources: the processor of https://fetch.spec.whatwg.org/#data-urls, with the URL parser's
    removal of line breaks and of the fragment. The declared type is not used: the content decides.
    """
    text = uri.encode(errors="replace").lstrip(_C0_AND_BLANK).translate(None, _REMOVED_FROM_URLS)
    head, comma, content = text.partition(b"#")[0].partition(b",")
    if not comma or head[:5].lower() != b"data:":
        raise MalformedRequest("not a data URI of the form data:image/…;base64,…")
    content = _ESCAPES.sub(lambda found: binascii.unhexlify(found[0].replace(b"%", b"")), content)
    return from_base64(content, "the data URI") if _BASE64.search(head) else content


def from_base64(text: bytes, noun: str) -> bytes:
    """Return the bytes of base64; raise MalformedRequest, whose text begins with `noun`.

    White space among the digits is skipped, and the padding may be missing. Source:
    https://infra.spec.whatwg.org/#forgiving-base64-decode.
    """
    digits = text.translate(None, _WHITE_SPACE)
    if len(digits) % 4 == 0:
        digits = digits.removesuffix(b"=").removesuffix(b"=")
    try:
        if b"=" in digits:
            raise ValueError("padding that the digits do not need")
        digits += b"=" * (-len(digits) % 4)
        return binascii.a2b_base64(digits, strict_mode=True)
    except ValueError:
        raise MalformedRequest(f"{noun} is not valid base64") from None
