"""Examples of the documentation: which of them are run, and how outputs are compared."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.documentation import OUTPUTS, PAGES, REASONS, ROOT, RUN, blocks, script
from tests.shown import differences

OTHER = ("cuda", "html", "ini", "lua", "nginx", "promql", "toml", "ts", "yaml")
"""Languages of blocks that are neither examples nor outputs."""

PAGE = """# Page
```sh
false
```
"""


def test_examples_are_left_out_for_known_reasons_only() -> None:
    for page in PAGES:
        text = page.read_text()
        reasons = [block.reason for block in blocks(text) if block.reason]
        assert set(reasons) <= set(REASONS)
        assert text.count("<!-- not run:") == len(reasons), (
            "a note stands directly before its block"
        )


def test_every_block_names_a_language() -> None:
    for page in PAGES:
        assert {block.language for block in blocks(page.read_text())} <= {*RUN, *OUTPUTS, *OTHER}


def test_a_command_that_fails_ends_the_script_and_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script(PAGE, javascript=False))
    variables = {"PATH": "/usr/bin:/bin", "PRINTED": str(tmp_path)}
    done = subprocess.run(["bash", "script"], cwd=tmp_path, env=variables, timeout=100)
    assert done.returncode == 1
    assert (tmp_path / "failed").read_text() == "line 3: false\n"


@pytest.mark.parametrize(
    ("shown", "printed", "word"),
    [
        ('{"status":"ok"}', '{"status":"error"}', "status"),
        ('{"index":0}', "{}", "index: is shown"),
        ('{"results":[1,2]}', '{"results":[1]}', "2 are shown"),
        ('{"score":0.5}', "{}", "score: is shown"),
        ('{"share":0.5}', '{"share":"half"}', "share"),
        ('{"index":0}\n{"index":1}', '{"index":0}', "2 JSON documents"),
        ('{"total":1}', '{"total":true}', "total"),
    ],
)
def test_json_that_is_not_as_shown_is_found(shown: str, printed: str, word: str) -> None:
    assert any(word in line for line in differences("json", shown, printed))


def test_the_program_of_the_bulk_page_removes_a_line_that_was_cut_off(tmp_path: Path) -> None:
    page = (ROOT / "docs/bulk.md").read_text()
    (program,) = (each.text for each in blocks(page) if each.language == "python")
    names: dict[str, Any] = {}
    exec(program.partition("\nmain()\n")[0], names)
    results = names["RESULTS"] = tmp_path / "labels.jsonl"
    assert names["finished"]() == set()
    results.write_text('{"file": "a.jpg"}\n{"file": "b.j')
    assert names["finished"]() == {"a.jpg"}
    assert results.read_text() == '{"file": "a.jpg"}\n'
