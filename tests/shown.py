"""Compare what a page shows with what a command printed.

`…` stands for anything that the page leaves out. In JSON, all keys that are shown must be there
with values of their kind; whole numbers, texts and booleans must be equal unless they differ from
machine to machine. In other texts, all lines that are shown must be there in their order; their
numbers are not compared.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

VARYING = frozenset(
    (
        "batch",
        "bytes",
        "data",
        "device",
        "instance",
        "precision",
        "request_id",
        "retry_after",
        "score",
        "sha256",
        "timing",
        "version",
        "warning",
    )
)
"""Keys whose values differ from machine to machine, or from run to run."""

LEFT_OUT = "…"


def differences(language: str, shown: str, printed: str) -> list[str]:
    """Return what is wrong with an output that a page shows, as lines for a person."""
    if language == "json":
        return list(_json_differences(shown, printed))
    return list(_text_differences(shown, printed))


def _json_differences(shown: str, printed: str) -> Iterator[str]:
    expected, actual = documents(shown), documents(printed)
    if len(actual) < len(expected):
        yield f"{len(expected)} JSON documents are shown, {len(actual)} were printed"
    if len(expected) > 1:  # records come in the order in which images are done
        expected, actual = (sorted(each, key=_place) for each in (expected, actual))
    for left, right in zip(expected, actual, strict=False):
        yield from _differ("", left, right)


def documents(text: str) -> list[Any]:
    """Return the JSON documents of a text, one after the other; left-out parts become missing."""
    text = re.sub(rf":\s*{LEFT_OUT}", f': "{LEFT_OUT}"', text.strip())
    text = re.sub(rf",\s*{LEFT_OUT}(?=\s*[,}}\]])", "", text)
    text = re.sub(rf"(?<=[{{\[])\s*{LEFT_OUT}\s*,?", "", text)
    found, decoder = [], json.JSONDecoder(strict=False)
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:].strip()
    return found


def _place(record: Any) -> Any:
    return record.get("index", 1 << 30) if isinstance(record, dict) else 0


def _differ(path: str, shown: Any, printed: Any) -> Iterator[str]:
    """Yield the differences below a path such as `results.0.status`."""
    if shown == LEFT_OUT:
        return
    if _kind(shown) is not _kind(printed):
        yield f"{path}: shown is {shown!r}, printed {printed!r}"
    elif isinstance(shown, dict):
        yield from _differ_in_keys(path, shown, printed)
    elif isinstance(shown, list):
        if len(printed) < len(shown):
            yield f"{path}: {len(shown)} are shown, {len(printed)} printed"
        for number, (left, right) in enumerate(zip(shown, printed, strict=False)):
            yield from _differ(f"{path}.{number}".lstrip("."), left, right)
    elif not _equal(shown, printed):
        yield f"{path}: shown is {shown!r}, printed {printed!r}"


def _differ_in_keys(path: str, shown: dict[str, Any], printed: dict[str, Any]) -> Iterator[str]:
    for key, value in shown.items():
        below = f"{path}.{key}".lstrip(".")
        if key not in printed:
            yield f"{below}: is shown, but not printed"
        elif key not in VARYING:
            yield from _differ(below, value, printed[key])


def _kind(value: Any) -> type:
    """Return the type of a JSON value; whole numbers and others have one type."""
    return float if type(value) is int else type(value)


def _equal(shown: Any, printed: Any) -> bool:
    """Return whether two values of one kind agree; of other numbers than whole ones all do."""
    if isinstance(shown, str):
        return bool(re.fullmatch(_pattern(shown), " ".join(printed.split())))
    return isinstance(shown, float) or isinstance(printed, float) or bool(shown == printed)


def _text_differences(shown: str, printed: str) -> Iterator[str]:
    rest = iter(_masked(printed).splitlines())
    for line in _masked(shown).splitlines():
        pattern = re.compile(_pattern(line))
        if pattern.pattern not in ("", ".*") and not any(
            pattern.fullmatch(" ".join(each.split())) for each in rest
        ):
            yield f"no printed line is {line!r}"
            return


def _masked(text: str) -> str:
    """Return the text with # for each number."""
    return re.sub(r"\d+(\.\d+)?", "#", text)


def _pattern(shown: str) -> str:
    """Return a pattern for a text in which white space is one blank and `…` is anything."""
    words = " ".join(shown.split())
    return ".*".join(re.escape(part) for part in words.split(LEFT_OUT))
