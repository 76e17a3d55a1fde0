"""`docs/settings.md` has a row for every setting; `SECURITY.md` names settings that exist."""

import re
from pathlib import Path

from models.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/settings.md"


def row(name: str) -> str:
    """Return a setting's line in the table of the page."""
    field = Settings.model_fields[name]
    default = field.get_default(call_default_factory=False)
    if isinstance(default, tuple):
        default = ",".join(default)
    shown = "" if default in (None, "") or default is Ellipsis else f"`{default}`"
    if name == "cache_folder":
        shown = "`~/.cache/darkroom`"
    return f"| `{PREFIX}{name.upper()}` | {shown} | {field.description} |"


def rows() -> list[str]:
    """Return the lines of the page that describe settings, after the list of ten."""
    start = f"| `{PREFIX}"
    tables = PAGE.read_text().partition("\n## Address and processes\n")[2]
    return [line for line in tables.splitlines() if line.startswith(start)]


def test_every_setting_has_its_row_in_the_table() -> None:
    expected = [row(name) for name in Settings.model_fields]
    assert rows() == expected, "\n" + "\n".join(expected)


def test_every_setting_that_the_page_of_security_names_has_the_default_it_says() -> None:
    named = rf"`{PREFIX}(\w+)`(?: \(`([^`]*)`\))?"
    found = re.findall(named, (ROOT / "SECURITY.md").read_text())
    assert len(found) > 10
    for name, default in found:
        field = Settings.model_fields[name.lower()]
        assert default in ("", str(field.default)), name
