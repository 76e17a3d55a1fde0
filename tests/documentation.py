"""The examples of a Markdown page, and the shell script that runs them in their order.

Blocks of ```` ```sh ````, ```` ```python ```` and ```` ```js ```` are examples. A comment
`<!-- not run: REASON -->` directly before a block excludes it. A block of ```` ```json ```` or
```` ```text ```` directly after an example is the output that the page shows; if it begins with
"darkroom: ", the command fails with this error.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]

PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "clients/python/README.md",
)
"""The pages whose examples are run."""

RUN = {"sh": "", "python": "python -", "js": "node --input-type=module -"}
"""Languages of examples, with the program that reads a block; the shell itself runs `sh`."""

OUTPUTS = ("json", "text")
"""Languages of outputs that a page shows."""

REASONS = (
    "changes the checkout",
    "needs a port for gRPC",
    "installs packages",
    "is part of a file",
    "needs a GPU",
    "needs a bucket",
    "needs a cluster",
    "needs Docker",
    "needs Kubernetes",
    "needs a load generator",
    "needs root",
    "runs until Ctrl-C",
    "takes minutes",
)
"""The only reasons for which an example may be left out."""

FENCE = re.compile(r"( *)```(\w*)\s*$")
NOTE = re.compile(r" *<!-- not run: (.*) -->\s*$")
END = "END_OF_THE_EXAMPLE"

FIRST = (
    "set -eE -o pipefail; "
    """trap 'echo "line $LINENO: $BASH_COMMAND" >"$PRINTED/failed"' ERR"""
)
"""The first line of each script: the first command that fails ends it, and is written down."""

EXPECTED = """ && { echo "line $LINENO: no error" >"$PRINTED/failed"; exit 1; } || true"""
"""The end of an example whose output is an error: the script goes on if its last command fails."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the numbers of the lines of its two fences, counted from 0, and its text.

    `reason` says why it is not run; it is empty for other blocks.
    """

    language: str
    first: int
    last: int
    lines: tuple[str, ...]
    reason: str = ""

    @property
    def text(self) -> str:
        """Return the text between the fences, without the indentation of the first fence."""
        return "\n".join(self.lines)

    @property
    def runs(self) -> bool:
        """Return whether the block is an example that is run."""
        return self.language in RUN and not self.reason


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page; a fence without an end is a ValueError."""
    lines, found, number = page.splitlines(), [], 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence:
            indent, language = fence.groups()
            inside = lines[number + 1 :]
            last = number + 1 + [line.rstrip() for line in inside].index(f"{indent}```")
            text = tuple(line.removeprefix(indent) for line in lines[number + 1 : last])
            found.append(Block(language, number, last, text, _reason(lines[:number])))
            number = last
        number += 1
    return found


def _reason(before: Sequence[str]) -> str:
    """Return the reason of a note in the last line that is not empty, or an empty text."""
    last = next((line for line in reversed(before) if line.strip()), "")
    note = NOTE.match(last)
    return note[1] if note else ""


def outputs(page: str) -> Iterator[tuple[Block, Block]]:
    """Yield each example that is run with the output that the page shows directly after it."""
    lines, found = page.splitlines(), blocks(page)
    for example, shown in pairwise(found):
        between = "".join(lines[example.last + 1 : shown.first]).strip()
        if example.runs and shown.language in OUTPUTS and not between:
            yield example, shown


def refused(shown: Block) -> bool:
    """Return whether an output shows an error of HTTP, which makes curl succeed all the same."""
    return bool(re.search(r"urn:darkroom:problem|^HTTP/[\d.]+ [45]", shown.text, re.MULTILINE))


def fails(shown: Block) -> bool:
    """Return whether an output is the error of a command line, which makes its command fail."""
    return shown.text.startswith("darkroom: ")


def script(page: str, *, javascript: bool) -> str:
    """Return a Bash script of a page's examples; its lines have the numbers of the page's lines.

    The output of the example whose first fence is line N, counted from 0, goes to `$PRINTED/N`,
    its errors to `$PRINTED/N.err`. Without `javascript`, examples in JavaScript are left out.
    """
    lines = [""] * len(page.splitlines())
    lines[0] = FIRST
    errors = {example.first for example, shown in outputs(page) if refused(shown)}
    failing = {example.first for example, shown in outputs(page) if fails(shown)}
    for block in blocks(page):
        if not block.runs or (block.language == "js" and not javascript):
            continue
        lines[block.first + 1 : block.last] = block.lines
        to = f'>"$PRINTED/{block.first}" 2>"$PRINTED/{block.first}.err"'
        if RUN[block.language]:
            lines[block.first] = f"{RUN[block.language]} {to} <<'{END}'"
            lines[block.last] = END
        else:
            setting = "CURL_HOME=" if block.first in errors else 'CURL_HOME="$FAILING"'
            lines[block.first] = f"{setting}; {{"
            lines[block.last] = f"}} {to}" + (EXPECTED if block.first in failing else "")
    return "\n".join(lines) + "\n"
