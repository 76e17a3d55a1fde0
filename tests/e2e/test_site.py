"""The site that `make site` builds from the documentation, without a network."""

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.documentation import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("sphinx") is None,
        reason="Sphinx is not installed (pip install -r requirements-docs.lock)",
    ),
]

LOADED = {"embed", "iframe", "img", "link", "object", "script", "source", "use"}
"""Elements whose address a browser loads; those of links are opened by people."""


class Addresses(HTMLParser):
    """The addresses that a page loads, and those that it leads to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: set[str] = set()
        self.linked: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "data", "srcset", "xlink:href") and value:
                (self.loaded if tag in LOADED else self.linked).add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documentation") / "site"
    command = [sys.executable, "-m", "tools.site", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_has_every_page(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").stem for path in (ROOT / "docs").glob("*.md")}
    assert pages <= {path.stem for path in (site / "docs").glob("*.html")}
    assert (site / "index.html").exists()


def test_the_site_loads_nothing_from_other_servers(site: Path) -> None:
    for page in site.rglob("*.html"):
        foreign = {each for each in Addresses(page.read_text()).loaded if urlsplit(each).netloc}
        assert not foreign, page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text()), sheet


def test_every_address_inside_the_site_leads_to_a_file(site: Path) -> None:
    for page in site.rglob("*.html"):
        found = Addresses(page.read_text())
        for address in found.loaded | found.linked:
            parts = urlsplit(address)
            if not parts.scheme and parts.path:
                assert (page.parent / unquote(parts.path)).exists(), f"{page.name}: {address}"
