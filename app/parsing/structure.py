"""Bound the structure of a JSON text before it is parsed, and cut long `data` strings out of it.

A parser makes an object of every token: 30 MB of `[[],[],…]` became 1 GB. One pass over the tokens
counts them, stops at a limit, and copies all but the long strings, which may be images.
"""

import re
import secrets
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from app.parsing.arriving import Text
from models.domain.errors import FieldError, InvalidParameter, MalformedRequest, TooLarge

MOST_TOKENS = 40_000
"""Strings, brackets, colons and commas of one text: a chain of 32 filters with kernels of 31 × 31
weights has 33,000. The limit costs 20 ms at most."""

TOKENS_PER_IMAGE = 64
"""More tokens for each image that a request may have."""

DEEPEST = 32
"""Levels of objects and lists within each other."""

LONGEST_STRING = 1 << 20
"""Bytes of a string other than `data` of an image."""

LONGEST_KEY = 1000
"""Bytes of a key."""

LONGEST_GAP = 1 << 16
"""Bytes between two tokens: a number, a word or white space."""

MOST_TEXT = 4 << 20
"""Bytes of the text apart from `data` of images."""

TEXT_PER_IMAGE = 1 << 14
"""More bytes for each image that a request may have: its URL and its id."""

SHORT = 1 << 10
"""Bytes of `data` that stay in the text."""

_MARK = secrets.token_hex(16)
"""Begins the strings that replace `data`; a client that knew it could name its own data only."""

_TOKEN = re.compile(rb'["\[\]{},:]')
_LONGEST_RUN = 1 << 10
"""Backslashes in a row, which are counted when a quote follows them."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a JSON text."""

    tokens: int = MOST_TOKENS
    text: int = MOST_TEXT

    @classmethod
    def of(cls, images: int) -> "Bounds":
        """Return the bounds of a request that may have this number of images."""
        return cls(MOST_TOKENS + TOKENS_PER_IMAGE * images, MOST_TEXT + TEXT_PER_IMAGE * images)


@dataclass(frozen=True, slots=True)
class Cut:
    """A JSON text without the long `data` strings of its images.

    Each of them is replaced by a string that is a key of `spans`: the range of the string's content
    in the original, escapes included.
    """

    text: bytes
    spans: dict[str, tuple[int, int]]


def cut(body: Text, bounds: Bounds, *, one_image: bool = False) -> Cut:
    """Check the structure of `body` and cut it.

    A byte order mark before the text is left out. Images are the objects in its list `images`, or
    with `one_image` the body itself. Any other `data` stays, because its replacement would be shown
    to the client as a wrong value.

    Raises TooLarge over a bound, InvalidParameter for a key that stands twice in one object, and
    MalformedRequest for some texts that are not JSON; a parser finds the others.
    """
    return _Scan(body, bounds, one_image).run()


@dataclass(slots=True)
class _Scan:
    """One pass over `body`; `keys` has a set for each open object and None for each open list.

    `top` is the key of the outermost object whose value is read.
    """

    body: Text
    bounds: Bounds
    one_image: bool
    top: str = ""
    keys: list[set[str] | None] = field(default_factory=list)
    kept: list[Text] = field(default_factory=list)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    size: int = 0
    tokens: int = 0

    def run(self) -> Cut:
        """Scan the whole text."""
        copied = len(BOM_UTF8) if self.body[: len(BOM_UTF8)] == BOM_UTF8 else 0
        key, wants_key = "", False
        for kind, start, end in self._tokens():
            if kind == b'"' and wants_key:
                key, wants_key = self._key(start, end), False
            elif kind == b'"' and end - start > SHORT and key == "data" and self._in_image():
                self._keep(copied, start)
                copied = self._remember(start, end)
            elif kind == b'"':
                self._check_string(end - start)
            elif kind in (b",", b"{", b"["):
                if kind != b",":
                    self._open(kind)
                wants_key, key = bool(self.keys) and self.keys[-1] is not None, ""
            elif kind != b":":
                wants_key = False
                self.keys[-1:] = []
        self._keep(copied, len(self.body))
        return Cut(b"".join(self.kept), self.spans)

    def _tokens(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield each token with the range of its content; raise TooLarge over the bounds."""
        body, place = self.body, 0
        # The bound of each search keeps the pass linear. A search that finds nothing ends it: at
        # the end of the text, or where a number or white space is too long.
        while found := _TOKEN.search(body, place, place + LONGEST_GAP):
            self._count()
            place = found.end()
            if found[0] == b'"':
                end = self._end_of_string(place)
                yield b'"', place, end
                place = end + 1
            else:
                yield found[0], place, place
        if len(body) - place > LONGEST_GAP:
            raise TooLarge(f"the JSON has a number or white space of over {LONGEST_GAP} bytes")

    def _count(self) -> None:
        self.tokens += 1
        if self.tokens > self.bounds.tokens:
            raise TooLarge(
                f"the JSON has more than {self.bounds.tokens} strings, brackets, colons and "
                "commas; send several requests"
            )

    def _end_of_string(self, start: int) -> int:
        """Return the place of the quote that ends the string whose content begins at `start`."""
        # A quote is escaped if an odd number of backslashes stands before it.
        end = self.body.find(b'"', start)
        while end > start and self.body[end - 1] == 0x5C:
            before = self.body[max(start, end - _LONGEST_RUN) : end]
            run = len(before) - len(before.rstrip(b"\\"))
            if run == _LONGEST_RUN:
                raise TooLarge(f"the JSON has {run} backslashes in a row")
            if run % 2 == 0:
                break
            self._count()
            end = self.body.find(b'"', end + 1)
        if end < 0:
            raise MalformedRequest("the body is not valid JSON: a string does not end")
        return end

    def _open(self, kind: bytes) -> None:
        if len(self.keys) == DEEPEST:
            raise TooLarge(f"the JSON is nested deeper than {DEEPEST} objects and lists")
        self.keys.append(set() if kind == b"{" else None)

    def _key(self, start: int, end: int) -> str:
        """Return the checked key in this range."""
        if end - start > LONGEST_KEY:
            raise TooLarge(f"the JSON has a key of {end - start} bytes; {LONGEST_KEY} are taken")
        try:
            key: str = msgspec.json.decode(self.body[start - 1 : end + 1], type=str)
        except ValueError:  # also of bytes that are not UTF-8
            raise MalformedRequest("the body is not valid JSON") from None
        there = self.keys[-1]
        assert there is not None
        if key in there:
            wrong = FieldError(key, "given more than once")
            raise InvalidParameter(f"{key[:60]}: {wrong.message}", [wrong])
        there.add(key)
        if len(self.keys) == 1:
            self.top = key
        return key

    def _in_image(self) -> bool:
        """Return whether the innermost object is an image."""
        if self.one_image:
            return len(self.keys) == 1
        return self.top == "images" and len(self.keys) == 3 and self.keys[1] is None

    def _check_string(self, size: int) -> None:
        if size > LONGEST_STRING:
            raise TooLarge(
                f"the JSON has a string of {size} bytes; one other than `data` of an image has "
                f"at most {LONGEST_STRING}"
            )

    def _remember(self, start: int, end: int) -> int:
        """Replace a string by a mark; return where the rest of the text begins."""
        name = f"{_MARK}{len(self.spans)}"
        self.spans[name] = (start, end)
        self.kept.append(name.encode())
        return end

    def _keep(self, start: int, end: int) -> None:
        self.size += end - start
        if self.size > self.bounds.text:
            raise TooLarge(
                f"the JSON has more than {self.bounds.text} bytes apart from `data` of images; "
                "send several requests"
            )
        self.kept.append(self.body[start:end])
