"""Build the documentation as a searchable site: `make site`, or `python -m tools.site`.

Sphinx reads the pages with MyST, which renders Markdown as Git forges do, and Furo is their look.
The site loads nothing from other servers, and its search needs no server at all. A link to a page
or a heading that does not exist fails the build, and so does a page that is in no chapter.
"""

import argparse
import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"

CHAPTERS = {
    "Use": (
        "docs/quick-start",
        "docs/step-by-step",
        "docs/api",
        "docs/clients",
        "docs/bulk",
        "docs/jobs",
        "docs/inference-protocol",
        "docs/filters",
        "docs/formats",
        "docs/errors",
        "docs/command-line",
        "docs/page",
    ),
    "Operate": (
        "docs/deploy",
        "docs/ray",
        "docs/settings",
        "docs/operations",
        "docs/tuning",
        "docs/troubleshooting",
        "docs/reliability",
        "docs/benchmarks",
        "docs/scale",
        "SECURITY",
    ),
    "Develop": (
        "CONTRIBUTING",
        "docs/releasing",
        "docs/architecture",
        "docs/decisions/001-exact-by-construction",
        "docs/decisions/002-one-forward-pass-for-each-core",
        "docs/decisions/003-jpegs-by-planes",
        "docs/decisions/004-decoding-in-processes",
        "docs/decisions/005-slots-of-shared-memory",
        "docs/decisions/006-address-checked-when-connecting",
        "docs/decisions/007-a-network-is-an-entry",
        "docs/decisions/009-several-front-ends",
        "docs/decisions/010-everything-prepared-before-ready",
        "docs/decisions/011-a-page-of-our-own",
        "docs/decisions/012-journals",
        "docs/decisions/013-one-thread-for-long-parsing",
        "docs/decisions/014-admit-while-the-wait-is-short",
        "docs/decisions/015-a-gpu-encodes-with-the-cpus-bytes",
        "docs/add-a-filter",
        "docs/your-own-network",
        "docs/add-an-output-format",
        "models/weights/README",
        "CHANGELOG",
    ),
}
"""The pages behind the README by chapter, as paths without `.md`, in the navigation's order."""

SETTINGS = {
    "project": "Darkroom",
    "root_doc": "index",
    "extensions": ["myst_parser"],
    "html_theme": "furo",
    "html_title": "Darkroom",
    "html_copy_source": False,
    "html_show_copyright": False,
    "html_show_sourcelink": False,
    "myst_enable_extensions": ["html_image"],
    "myst_heading_anchors": 6,
    # Examples of JSON leave parts out by an ellipsis, which is no JSON.
    "suppress_warnings": ["misc.highlighting_failure"],
}
"""Sphinx's configuration: https://www.sphinx-doc.org/en/master/usage/configuration.html."""


def build(target: Path, root: Path = ROOT) -> int:
    """Build the site of a checkout in a folder and return 0, or 1 after warnings.

    Warnings go to standard error and name pages and lines. Files of an earlier site are replaced.
    """
    from sphinx.application import Sphinx

    pages = target.with_name(f"{target.name}-pages")
    for folder in (pages, target):
        shutil.rmtree(folder, ignore_errors=True)
    _copy(root, pages)
    application = Sphinx(
        pages,
        confdir=None,
        outdir=target,
        doctreedir=pages / "doctrees",
        buildername="html",
        confoverrides=SETTINGS,
        status=None,
        warningiserror=True,
        freshenv=True,
    )
    application.build()
    shutil.rmtree(pages)
    return int(application.statuscode)


def _copy(root: Path, target: Path) -> None:
    """Copy the pages and their pictures; the README becomes the first page."""
    shutil.copytree(root / "docs", target / "docs")
    for name in (name for names in CHAPTERS.values() for name in names if "docs/" not in name):
        path = target / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / f"{name}.md", path)
    shutil.copy(root / "README.md", target / "index.md")
    for path in target.rglob("*.md"):
        path.write_text(_linked(path.read_text(), path.parent.relative_to(target), root, target))
    with (target / "index.md").open("a") as index:
        index.write(_navigation())


def _linked(page: str, folder: Path, root: Path, target: Path) -> str:
    """Return a page of a folder with the links of the site.

    The README is called `index`. A link to a file of the repository that is no page becomes its
    text, because the site does not have the file; one to a file that does not exist stays and fails
    the build.
    """

    def replaced(link: re.Match[str]) -> str:
        text, address, heading = link.groups(default="")
        if (root / folder / address).resolve() == (root / "README.md").resolve():
            index = os.path.relpath(target / "index.md", target / folder)
            return f"[{text}]({index}{heading})"
        missing = (root / folder / address).exists() and not (target / folder / address).exists()
        return text if missing else link[0]

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)", replaced, page)


def _navigation() -> str:
    """Return the tables of contents, which the theme shows beside every page."""
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {chapter}\n\n{chr(10).join(names)}\n```\n"
        for chapter, names in CHAPTERS.items()
    )


def main() -> int:
    """Build the site where the command line says, and say how to open it."""
    parser = argparse.ArgumentParser(description="Build the documentation as a searchable site.")
    parser.add_argument("folder", nargs="?", type=Path, default=SITE, help="default: %(default)s")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout with the pages")
    chosen = parser.parse_args()
    code = build(chosen.folder, chosen.root)
    print("the site has faults" if code else f"open {chosen.folder / 'index.html'} in a browser")
    return code


if __name__ == "__main__":
    sys.exit(main())
