"""The README's promises that can be checked by reading it."""

import re
from pathlib import Path

from models.exit_codes import ExitCode
from models.settings import PREFIX, Settings

README = (Path(__file__).parents[2] / "README.md").read_text()


def row(name: str) -> str:
    """Return a setting's line in the README's table."""
    field = Settings.model_fields[name]
    default = field.get_default(call_default_factory=False)
    if isinstance(default, tuple):
        default = ",".join(default)
    shown = "" if default in (None, "") or default is Ellipsis else f"`{default}`"
    if name == "cache_folder":
        shown = "`~/.cache/darkroom`"
    return f"| `{PREFIX}{name.upper()}` | {shown} | {field.description} |"


def test_every_setting_has_its_row_in_the_table() -> None:
    rows = [row(name) for name in Settings.model_fields]
    assert "\n".join(rows) in README, "\n" + "\n".join(rows)


def test_the_changelog_and_the_architecture_page_are_linked() -> None:
    assert "docs/architecture.md" in README
    assert "CHANGELOG.md" in README


def test_every_exit_code_is_in_the_table() -> None:
    rows = re.findall(r"^\| ([0-9, ]+) \| .* \| .* \|$", README, re.MULTILINE)
    codes = [int(code) for row in rows for code in row.split(",")]
    assert codes == [code.value for code in ExitCode]
