"""The program of docs/bulk.md after it was killed while it wrote."""

from pathlib import Path
from typing import Any

from tests.documentation import blocks

PAGE = Path(__file__).parents[2] / "docs/bulk.md"


def test_a_line_that_was_cut_off_is_removed_and_its_file_asked_for_again(tmp_path: Path) -> None:
    (program,) = (each.text for each in blocks(PAGE.read_text()) if each.language == "python")
    names: dict[str, Any] = {}
    exec(program.partition("\nmain()\n")[0], names)
    results = names["RESULTS"] = tmp_path / "labels.jsonl"
    assert names["finished"]() == set()
    results.write_text('{"file": "a.jpg"}\n{"file": "b.j')
    assert names["finished"]() == {"a.jpg"}
    assert results.read_text() == '{"file": "a.jpg"}\n'
