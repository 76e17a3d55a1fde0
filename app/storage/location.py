"""Addresses of stored files: `file:///folder/name`, `s3://bucket/key`, `gs://…` and `az://…`.

A local address is a URL (RFC 8089): it is percent-decoded once, and its parts are checked after
that. Addresses of buckets are written as the tools of their stores write them: a key stands as it
is, undecoded.
"""

import os
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from app.urls import SCHEMES
from models.domain.errors import FieldError, InvalidParameter

LONGEST = 4096
"""Bytes of a path or key, decoded."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Location:
    """Address of a file, or of all files below it.

    `bucket` is empty for local files. `parts` are the names on the way, without `.`, `..`, empty
    ones and slashes; those of local files may have bytes that are not UTF-8, escaped as in `os`.
    """

    scheme: str
    bucket: str
    parts: tuple[str, ...]

    @property
    def key(self) -> str:
        """Return the parts with slashes between them."""
        return "/".join(self.parts)

    @property
    def root(self) -> str:
        """Return the beginning of all addresses of the bucket: `s3://bucket`."""
        return f"{self.scheme}://{self.bucket}"

    def __str__(self) -> str:
        """Return the address in the form that `parse` reads."""
        if self.scheme == "file":
            return "file:///" + quote(os.fsencode(self.key))
        return f"{self.root}/{self.key}"

    def within(self, prefix: "Location") -> bool:
        """Return whether this is `prefix` or lies below it; `s3://b/photos2` is not in `photos`."""
        length = len(prefix.parts)
        same = (self.scheme, self.bucket) == (prefix.scheme, prefix.bucket)
        return same and self.parts[:length] == prefix.parts

    def below(self, name: str) -> "Location":
        """Return the address of `name`, whose parts stand between slashes, below this one.

        Raises InvalidParameter for names that would lead elsewhere.
        """
        return Location(self.scheme, self.bucket, (*self.parts, *_parts(name, self.scheme, name)))


def parse(text: str) -> Location:
    """Return the location that `text` spells; raise InvalidParameter."""
    scheme, mark, rest = text.partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in SCHEMES:
        raise _invalid(f"begin it with one of {', '.join(f'{s}://' for s in SCHEMES)}", text)
    bucket, _, path = rest.partition("/")
    if scheme == "file":
        return Location("file", "", _parts(_decoded(bucket, path, text), scheme, text))
    if not _BUCKET.fullmatch(bucket):
        wrong = "the name of the bucket has 3 to 63 of a-z, 0-9, `.`, `_` and `-`"
        raise _invalid(f"{wrong}, as in {scheme}://bucket/folder/name", text)
    return Location(scheme, bucket, _parts(path, scheme, text))


def _decoded(host: str, path: str, text: str) -> str:
    if host not in ("", "localhost"):
        raise _invalid("a local file has no host: write file:///folder/name", text)
    if "?" in path or "#" in path:
        raise _invalid("write `?` in a local file's name as %3F and `#` as %23", text)
    try:
        return os.fsdecode(unquote_to_bytes(path))
    except UnicodeEncodeError:
        raise _invalid("has characters that no file name can have", text) from None


def _parts(path: str, scheme: str, text: str) -> tuple[str, ...]:
    """Return the checked parts of a path; one slash at its end is allowed."""
    parts = path.removesuffix("/").split("/") if path.removesuffix("/") else []
    if any(part in ("", ".", "..") for part in parts):
        raise _invalid("`.`, `..` and empty parts between slashes are not allowed", text)
    if "\0" in path or (scheme != "file" and _CONTROL.search(path)):
        raise _invalid("control characters are not allowed", text)
    try:
        size = len(os.fsencode(path)) if scheme == "file" else len(path.encode())
    except UnicodeEncodeError:
        raise _invalid("is not text in UTF-8", text) from None
    if size > LONGEST:
        raise _invalid(f"the path has more than {LONGEST} bytes", text)
    return tuple(parts)


def _invalid(wrong: str, given: str) -> InvalidParameter:
    shown = given[:200].encode("utf-8", "replace").decode()
    return InvalidParameter(f"storage address: {wrong}", [FieldError("url", wrong, shown)])
