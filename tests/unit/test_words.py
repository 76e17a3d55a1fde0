"""Docstrings and comments are plain sentences: words that make riddles of them are refused."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

RIDDLES = re.compile(
    r"\b(knows? (no|nothing)|whoever|nobody|heard|the dead|bereft|sings?|rides?|for ever"
    r"|is there itself|so many (bytes|pixels|requests|images|columns|weights|steps|times))\b",
    re.IGNORECASE,
)
"""Phrases that `CONTRIBUTING.md` rules out, because a noun or a number says more."""

FILES = [
    path
    for package in ("app", "models", "workers", "tools", "clients")
    for path in sorted((ROOT / package).rglob("*.py"))
]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "clients").glob("*/*.md")),
]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
ALL_FILES = FILES + TESTS
VERBLESS = re.compile(
    r"(an?|the|all|and|any|as|beside|by|each|every|from|how|in|it|its|no|nothing|of|on|one|only"
    r"|some|somewhere|such|that|their|they|this|those|through|to|what|whatever|when|where|whether"
    r"|who|whose|with|without)\b",
    re.IGNORECASE,
)
"""Beginnings of a docstring of a function that does not begin with a verb."""

IGNORED = re.compile(r"# type: ignore(?!\[[a-z-]+(, ?[a-z-]+)*\]  # \w)")
"""An ignored finding of mypy without its code in brackets and a reason behind it."""


def prose(source: str) -> Iterator[str]:
    """Yield the comments of a module and the strings that stand alone, such as docstrings.

    Identifiers and data of tests are left out: a test may need the words of a client.
    """
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def test_files_pages_and_the_prose_of_tests_are_without_riddles() -> None:
    texts = [(path, path.read_text()) for path in (*FILES, *PAGES)]
    texts += [(path, text) for path in TESTS for text in prose(path.read_text())]
    found = [f"{path}: {match[0]}" for path, text in texts for match in RIDDLES.finditer(text)]
    assert not found, f"say it with a noun: {found}"


def verbless(source: str) -> list[str]:
    """Return the functions of a module whose docstrings do not begin with a verb.

    The names of tests are sentences themselves; their docstrings may add whatever explains them.
    """
    functions = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return [
        f"{node.name}: {text.splitlines()[0]}"
        for node in functions
        if not node.name.startswith("test_")
        and VERBLESS.match(text := ast.get_docstring(node) or "")
    ]


def test_the_docstring_of_a_function_begins_with_a_verb() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {each}"
        for path in ALL_FILES
        for each in verbless(path.read_text())
    ]
    assert not found


def test_an_ignored_type_error_has_its_code_and_a_reason() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in ALL_FILES
        if path != Path(__file__)
        for line in path.read_text().splitlines()
        if IGNORED.search(line)
    ]
    assert not found
