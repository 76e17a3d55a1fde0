"""Docstrings and comments are plain sentences: words that make riddles of them are refused."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RIDDLES = re.compile(
    r"\b(knows? (no|nothing)|whoever|nobody|heard|the dead|bereft|sings?|rides?|for ever"
    r"|is there itself|so many (bytes|pixels|requests|images|columns|weights|steps|times))\b",
    re.IGNORECASE,
)
"""Phrases that `CONTRIBUTING.md` rules out, because a noun or a number says more."""

FILES = [
    path
    for package in ("app", "models", "workers", "tools")
    for path in sorted((ROOT / package).rglob("*.py"))
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_speaks_without_riddles(path: Path) -> None:
    found = [match[0] for match in RIDDLES.finditer(path.read_text())]
    assert not found, f"say it with a noun: {found}"
