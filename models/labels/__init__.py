"""Label sets: the names of a network's classes, in class order.

Labels shipped with Darkroom are package data, JSON lists of [wnid, label]; further labels are read
from a file. Whether labels fit a network is checked where the network is opened.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

_FORMS = (
    "labels are a JSON list of strings, a JSON list of [wnid, label] pairs, or text with one label "
    "a line, in class order"
)


@dataclass(frozen=True, slots=True)
class LabelSet:
    """The label of each class, and its WordNet id if it has an id.

    A network that gives embeddings alone has no labels.
    """

    name: str
    labels: tuple[str, ...]
    wnids: tuple[str | None, ...]


@cache
def shipped(name: str) -> LabelSet:
    """Return `imagenet1k`, the 1000 classes as torchvision labels them, or `imagenette10`, ten of
    them.
    """
    text = resources.files(__name__).joinpath(f"{name}.json").read_text("utf-8")
    return _labelled(name, _from_json(text))


def read_labels(path: Path) -> LabelSet:
    """Return the labels in a file, named after it; the text of ValueError states the fault and its
    line.
    """
    try:
        text = path.read_text("utf-8-sig")
        is_json = path.suffix.lower() == ".json" or text.lstrip().startswith("[")
        return _labelled(path.stem, _from_json(text) if is_json else _from_lines(text))
    except OSError as error:
        raise ValueError(f"cannot read the labels {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"the labels {path} are not UTF-8 text") from error
    except ValueError as error:
        raise ValueError(f"the labels {path} cannot be used: {error}; {_FORMS}") from error


def _labelled(name: str, pairs: Sequence[tuple[str | None, str]]) -> LabelSet:
    if not pairs:
        raise ValueError("there are none")
    return LabelSet(name, tuple(label for _, label in pairs), tuple(wnid for wnid, _ in pairs))


def _from_json(text: str) -> list[tuple[str | None, str]]:
    entries = json.loads(text)
    if not isinstance(entries, list):
        raise ValueError("the JSON is not a list")  # noqa: TRY004 (wrong content of a file)
    if len({type(entry) for entry in entries}) > 1:
        raise ValueError("some entries are strings and some are not")
    return [_pair(number, entry) for number, entry in enumerate(entries)]


def _pair(number: int, entry: object) -> tuple[str | None, str]:
    match entry:
        case str(label) if label.strip():
            return None, label
        case [str() | None as wnid, str(label)] if label.strip():
            return wnid, label
    raise ValueError(f"entry {number} is {json.dumps(entry)[:80]}")


def _from_lines(text: str) -> list[tuple[str | None, str]]:
    """Return labels, a label a line; refuse a blank line before the last label, which would shift
    classes.
    """
    lines = [line.strip() for line in text.rstrip().split("\n")] if text.strip() else []
    if "" in lines:
        raise ValueError(f"line {lines.index('') + 1} is blank")
    return [(None, line) for line in lines]
