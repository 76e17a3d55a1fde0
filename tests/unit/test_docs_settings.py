"""Settings and commands of pages exist, also in the examples that tests cannot run."""

import re
import shlex

import pytest

from app.cli.parser import complete_parser
from models.settings import PREFIX, Settings
from models.settings_loading import load_settings
from tests.documentation import PAGES, ROOT, Block, blocks

ASSIGNED = re.compile(rf"\b{PREFIX}(\w+)=(\S*)")


NO_SETTINGS = {"name", "api_key"}
"""A placeholder for any setting, and the variable from which the page's code reads a key."""


def served() -> list[tuple[str, str]]:
    """Return the lines of examples that start a server and are not run, with their pages.

    Those of a checkout that the reader has changed before are left out.
    """
    found = []
    for page in PAGES:
        for block in blocks(page.read_text()):
            text = block.text.replace("\\\n", " ")
            lines = [line for line in text.splitlines() if re.search(r"darkroom serve", line)]
            found += [(page.name, line) for line in lines if excluded(block)]
    return found


def excluded(block: Block) -> bool:
    return bool(block.reason) and block.reason != "changes the checkout"


def test_every_setting_that_a_page_names_exists() -> None:
    for page in PAGES:
        names = re.findall(rf"\b{PREFIX}([A-Z0-9_]+)\b(?!_?[…*])", page.read_text())
        assert {name.lower() for name in names} <= set(Settings.model_fields) | NO_SETTINGS


@pytest.mark.parametrize(("page", "line"), served())
def test_a_server_that_a_page_starts_has_valid_settings(
    page: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ASSIGNED.findall(line):
        monkeypatch.setenv(f"{PREFIX}{name}", value)
    flags = shlex.split(line.partition("darkroom serve")[2].rstrip("& "))
    given = vars(complete_parser().parse_args(["serve", *flags]))
    given.pop("settings_file")  # the reader has it
    chosen = {name: value for name, value in given.items() if value is not None}
    assert load_settings(**{k: v for k, v in chosen.items() if k in Settings.model_fields}), page


def test_every_target_of_make_that_a_page_names_exists() -> None:
    for page in PAGES:
        named = re.findall(
            r"(?:`|^)make ([a-z][a-z-]*)\b(?=[ `\n])", page.read_text(), re.MULTILINE
        )
        made = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(named) <= set(made)


def test_no_page_or_message_installs_darkroom_by_its_name() -> None:
    # A package index may have a package of that name that is not this one.
    installs = re.compile(
        r"install\s+(?:-\S+\s+)*[\"'`\\]*darkroom(?:\[|==|[\"'`]|\s*$)", re.MULTILINE
    )
    folders = [ROOT / name for name in ("app", "docker", "models", "workers")]
    texts = [*PAGES, *ROOT.glob("*.md"), *(path for each in folders for path in each.rglob("*.py"))]
    assert not [path.name for path in texts if installs.search(path.read_text())]
