"""Modules and pages say things by their nouns: phrases that make riddles of them are refused."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

RIDDLES = re.compile(
    r"\b(knows? (no|nothing)|whoever|nobody|heard|the dead|bereft|sings?|rides?|for ever"
    r"|is there itself|so many (bytes|pixels|requests|images|columns|weights|steps|times))\b",
    re.IGNORECASE,
)
"""Phrases that `CONTRIBUTING.md` rules out, because a noun or a number says more."""


def test_modules_and_pages_are_without_riddles() -> None:
    packages = ("app", "models", "workers", "tools", "clients")
    paths = [path for each in packages for path in (ROOT / each).rglob("*.py")]
    paths += [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("clients/*/*.md")]
    texts = [(path, path.read_text()) for path in paths]
    found = [f"{path}: {match[0]}" for path, text in texts for match in RIDDLES.finditer(text)]
    assert not found, f"say it with a noun: {found}"
