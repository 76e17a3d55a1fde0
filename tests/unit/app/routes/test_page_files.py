"""The files of the page: small, without anything of other servers, and consistent in themselves."""

import re
from operator import attrgetter
from pathlib import Path

import pytest

from app.routes.page import FOLDER, forms

MOST_BYTES = 200_000

SCRIPTS = sorted(FOLDER.glob("*.js"))
TEXTS = [path for path in sorted(FOLDER.iterdir()) if path.suffix != ".jpg"]

NAMESPACE = "http://www.w3.org/2000/svg"
"""The name of SVG, which no browser opens."""


def test_all_files_together_stay_below_200_kilobytes() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES


def test_a_file_names_no_address_of_another_server() -> None:
    for path in TEXTS:
        text = path.read_text().replace(NAMESPACE, "")
        assert not re.search(r"https?://[\w-]|[\"'(]//\w|@import|\burl\(", text), path


@pytest.mark.parametrize("path", SCRIPTS, ids=attrgetter("name"))
def test_a_script_makes_no_markup_and_imports_names_that_are_exported_and_used(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
    for names, module in re.findall(r'import \{ ([^}]+) \} from "\./([\w.]+)"', text):
        exported = (FOLDER / module).read_text()
        for each in names.split(", "):
            assert re.search(rf"export (async )?(function|class|const) {each}\b", exported), each
            assert len(re.findall(rf"\b{each}\b", text)) > 1, f"{each} is not used"


def test_names_and_values_in_the_forms_without_scripts_are_text_and_never_markup() -> None:
    fields = {"files": {"type": "array"}, "<i>": {"default": '"><b>'}}
    content = {"multipart/form-data": {"schema": {"properties": fields}}}
    text = forms({"paths": {"/<a>": {"post": {"requestBody": {"content": content}}}}})
    assert text.startswith("<section>")
    assert not re.search(r"<(a|b|i)>", text)
