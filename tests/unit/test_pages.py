"""The pages of the documentation: their picture, their paragraphs, and the files that they name."""

import re
from pathlib import Path

from tools import path_picture, site

ROOT = Path(__file__).parents[2]

PAGES = [
    *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "filters.md"),
    *sorted((ROOT / "docs/decisions").glob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
]

NAMED = re.compile(r"`((?:app|models|workers|tests|tools|docs)/[\w/.]+)`")


def test_the_picture_is_what_its_program_draws() -> None:
    drawn = path_picture.PICTURE.read_text()
    assert drawn == path_picture.picture(), "run `make docs`"


def test_the_picture_names_folders_that_exist() -> None:
    assert all((ROOT / box.folder).is_dir() for box in path_picture.BOXES)


def test_every_file_that_a_page_names_exists() -> None:
    for page in PAGES:
        text = re.sub(
            r"^\| `.*$", "", page.read_text(), flags=re.MULTILINE
        )  # folders before a move
        for name in NAMED.findall(text):
            assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_every_link_of_a_page_leads_to_a_file() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links {target}"


def test_every_page_is_in_one_chapter_of_the_site() -> None:
    named = sorted(name for names in site.CHAPTERS.values() for name in names)
    pages = sorted(path for path in PAGES if path.name != "README.md")
    pages += [
        ROOT / name for name in ("docs/filters.md", "CHANGELOG.md", "models/weights/README.md")
    ]
    assert named == sorted(str(path.relative_to(ROOT).with_suffix("")) for path in pages)


def test_every_page_is_reached_from_the_readme_by_links() -> None:
    reached, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page not in reached:
            reached.add(page)
            targets = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text())
            left += [(page.parent / target).resolve() for target in targets]
    assert {page for page in PAGES if page not in reached} == set()


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_link_to_a_heading_leads_to_one() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            there = page.parent / target if target else page
            assert anchor in anchors(there), f"{page.name} links {target}#{anchor}"
