"""The README's promises, and those of the page of the command line, that reading can check."""

import re
from pathlib import Path

from models.exit_codes import ExitCode

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMAND_LINE = (ROOT / "docs/command-line.md").read_text()


def test_the_changelog_and_the_architecture_page_are_linked() -> None:
    assert "docs/architecture.md" in README
    assert "CHANGELOG.md" in README


def test_every_exit_code_is_in_the_table() -> None:
    rows = re.findall(r"^\| ([0-9, ]+) \| .* \| .* \|$", COMMAND_LINE, re.MULTILINE)
    codes = [int(code) for row in rows for code in row.split(",")]
    assert codes == [code.value for code in ExitCode]
