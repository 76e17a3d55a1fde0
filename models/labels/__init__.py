"""Label sets: the names of a network's classes. The shipped ones are package data here."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LabelSet:
    """Labels and WordNet ids in class order; a wnid is None where the set has none."""

    name: str
    labels: tuple[str, ...]
    wnids: tuple[str | None, ...]

    def __len__(self) -> int:
        return len(self.labels)


@cache
def imagenet1k() -> LabelSet:
    """The 1000 classes of ILSVRC 2012."""
    return _parse("imagenet1k", (files(__name__) / "imagenet1k.json").read_text("utf-8"))


def read_labels(path: Path) -> LabelSet:
    """A label set from a file: JSON list of labels or of [wnid, label], or one label a line.

    Raises ValueError when it is none of these, OSError when it cannot be read.
    """
    text = path.read_text("utf-8")
    if text.lstrip().startswith("["):
        return _parse(path.name, text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return LabelSet(path.name, tuple(lines), (None,) * len(lines))


def _parse(name: str, text: str) -> LabelSet:
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise ValueError(f"labels {name}: not valid JSON: {error}") from None
    pairs = [(None, row) if isinstance(row, str) else row for row in rows]
    for number, pair in enumerate(pairs):
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[1], str)):
            raise ValueError(f"labels {name}: entry {number} is neither a label nor [wnid, label]")
    return LabelSet(name, tuple(label for _, label in pairs), tuple(wnid for wnid, _ in pairs))
