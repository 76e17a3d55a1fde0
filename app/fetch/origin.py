"""Ask an origin once: one request, one answer. Redirects, retries and waiting are up to the
caller.
"""

import ssl
from collections.abc import Callable
from contextlib import aclosing
from email.utils import parsedate_to_datetime

import httpx

from app.fetch.bounded_stream import ContentMeter, answered
from app.intake.content_coding import CODINGS, BadCoding, Inflater
from app.intake.spool import Blob, Spool
from app.urls.url_policy import MAX_URL, host_of, parse_url
from models.domain.errors import (
    InvalidParameter,
    OriginBusy,
    OriginFailed,
    OriginTimedOut,
    ServiceError,
)
from models.version import VERSION

RETRIED = frozenset((429, 502, 503, 504))
LONGEST_DATE = 100
"""Characters of a date in Retry-After that is parsed; usual ones have 29."""

PACKED = frozenset(
    (*CODINGS, "br", "zstd", "compress", "x-compress", "dcb", "dcz", "bzip2", "lzma", "xz")
)
"""Names of compressions, of which CODINGS are undone."""

REDIRECTS = frozenset((301, 302, 303, 307, 308))

_HEADERS = {
    "User-Agent": f"darkroom/{VERSION}",
    "Accept": "image/*",
    "Accept-Encoding": "identity",
}


class Again(Exception):
    """A failure worth another try, after `pause` seconds if the origin named them."""

    def __init__(self, error: ServiceError, pause: float | None = None) -> None:
        self.error = error
        self.pause = pause


class Origins:
    """Client for all origins; `spool` makes the containers of bodies.

    It uses a bare `transport` without httpx's client, so nothing keeps cookies, reads credentials
    or proxies of the environment, follows redirects or logs URLs.
    """

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport,
        timeout: httpx.Timeout,
        spool: Callable[[], Spool],
    ) -> None:
        self._transport = transport
        self._extensions = {"timeout": timeout.as_dict()}
        self._spool = spool

    async def ask(self, url: httpx.URL) -> Blob | httpx.URL:
        """Return the body, or the target of a redirect; raise ServiceError, or Again around one.

        Only here httpx's errors become errors of the service.
        """
        host = host_of(url)
        request = httpx.Request("GET", url, headers=_HEADERS, extensions=self._extensions)
        try:
            async with aclosing(await self._transport.handle_async_request(request)) as reply:
                stream = reply.extensions.get("network_stream")
                meter = answered(stream, reply.headers.raw)
                if reply.status_code in REDIRECTS and "location" in reply.headers:
                    return _redirect(url, reply.headers["location"])
                return await self._body(reply, host, meter)
        except httpx.ConnectTimeout:
            raise Again(OriginTimedOut(f"{host} could not be connected to in time")) from None
        except httpx.TimeoutException:  # slow once, slow again: not worth a second wait
            raise OriginTimedOut(f"{host} did not send in time") from None
        except httpx.ConnectError as error:
            if _is_about_tls(error):
                raise OriginFailed(f"no TLS with {host}: check its certificate and port") from None
            busy = OriginBusy(f"no connection to {host}: check name and port", retry_after=0.0)
            raise Again(busy) from None
        except httpx.HTTPError:
            busy = OriginBusy(f"the connection to {host} broke", retry_after=0.0)
            raise Again(busy) from None

    async def _body(self, reply: httpx.Response, host: str, meter: ContentMeter) -> Blob:
        if reply.status_code != httpx.codes.OK:
            text = f"{host} answered {reply.status_code}"
            if reply.status_code in RETRIED:
                pause = retry_after(reply.headers)
                raise Again(OriginBusy(text, retry_after=pause or 0.0), pause)
            raise OriginFailed(text)
        coding = _coding(reply.headers.get("content-encoding", ""), host)
        async with self._spool() as spool:
            if coding:
                await _unpack(reply, coding, spool, host, meter)
                return await spool.finish()
            declared = reply.headers.get("content-length", "")
            if declared.isdigit():
                spool.expect(int(declared))
            async for chunk in reply.aiter_raw():
                meter.add(chunk)
                await spool.write(chunk)
            return await spool.finish()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()


def _coding(given: str, host: str) -> str:
    """Return the coding to undo, empty without one; raises OriginFailed for one that is not read.

    Some origins send a name that is no compression, such as `utf-8` or `binary`.
    """
    packed = [
        each for each in (name.strip().lower() for name in given.split(",")) if each in PACKED
    ]
    if len(packed) > 1 or (packed and packed[0] not in CODINGS):
        raise OriginFailed(
            f"{host} sent a body compressed by {', '.join(packed)[:60]} although none was asked for"
        )
    return CODINGS[packed[0]] if packed else ""


async def _unpack(
    reply: httpx.Response, coding: str, spool: Spool, host: str, meter: ContentMeter
) -> None:
    """Write the unpacked body; its size is bounded by that of the spool."""
    inflater = Inflater(coding)
    try:
        async for chunk in reply.aiter_raw():
            meter.add(chunk)
            inflater.feed(chunk)
            while piece := await inflater.piece():
                await spool.write(piece)
        inflater.finish()
    except BadCoding as error:
        raise OriginFailed(f"{host} sent a body that {error}") from None


def _redirect(url: httpx.URL, location: str) -> httpx.URL:
    """Return the target of a redirect, checked like any URL; it never leads from https down to
    http.
    """
    host = host_of(url)
    if len(location) > MAX_URL:  # before it is escaped and joined, which takes 1 µs a character
        raise OriginFailed(f"{host} redirects to a URL of more than {MAX_URL} characters")
    try:
        target = parse_url(str(url.join(location)))
    except (httpx.InvalidURL, InvalidParameter, ValueError):
        raise OriginFailed(f"{host} redirects to what is no URL of http or https") from None
    if url.scheme == "https" and target.scheme == "http":
        raise OriginFailed(f"{host} redirects from https to http, which is not followed")
    return target


def retry_after(headers: httpx.Headers) -> float | None:
    """Return the seconds of the Retry-After header; a date is compared with the reply's own
    Date.
    """
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text)
    if len(text) > LONGEST_DATE:
        return None
    try:
        until = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, until.total_seconds())


def _is_about_tls(error: BaseException | None) -> bool:
    """Return whether a TLS handshake failed, which is not worth another try."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None
