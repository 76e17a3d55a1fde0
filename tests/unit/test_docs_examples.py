"""Examples of the documentation: which of them are run, and how outputs are compared."""

import subprocess
from pathlib import Path

import pytest

from tests.documentation import OUTPUTS, PAGES, REASONS, RUN, blocks, outputs, script
from tests.shown import differences, documents

OTHER = ("cuda", "html", "ini", "lua", "nginx", "promql", "ts", "yaml")
"""Languages of blocks that are neither examples nor outputs."""

PAGE = """# Page
A command with its output:
```sh
echo "$GREETING world"
```

```text
hello …
```

- A point with a program:

  ```python
  print("indented")
  ```

<!-- not run: needs Docker -->
```sh
docker compose up
```

```js
console.log(1 + 1)
```
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_are_left_out_for_known_reasons_only(page: Path) -> None:
    text = page.read_text()
    reasons = [block.reason for block in blocks(text) if block.reason]
    assert set(reasons) <= set(REASONS)
    assert text.count("<!-- not run:") == len(reasons), "a note stands directly before its block"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_names_a_language(page: Path) -> None:
    assert {block.language for block in blocks(page.read_text())} <= {*RUN, *OUTPUTS, *OTHER}


def test_blocks_have_their_languages_texts_and_reasons() -> None:
    found = [(each.language, each.text, each.reason) for each in blocks(PAGE)]
    assert found == [
        ("sh", 'echo "$GREETING world"', ""),
        ("text", "hello …", ""),
        ("python", 'print("indented")', ""),
        ("sh", "docker compose up", "needs Docker"),
        ("js", "console.log(1 + 1)", ""),
    ]


def test_an_output_belongs_to_the_example_directly_before_it() -> None:
    assert [(each.language, shown.text) for each, shown in outputs(PAGE)] == [("sh", "hello …")]


def ran(text: str, folder: Path) -> "subprocess.CompletedProcess[bytes]":
    (folder / "script").write_text(text)
    variables = {"PATH": "/usr/bin:/bin", "PRINTED": str(folder), "GREETING": "hello"}
    return subprocess.run(["bash", "script"], cwd=folder, env=variables, timeout=100)


def test_a_script_runs_what_is_not_left_out_and_keeps_the_outputs_apart(tmp_path: Path) -> None:
    page = PAGE.replace('```python\n  print("indented")', "```sh\n  GREETING=more; pwd")
    assert ran(script(page, javascript=False), tmp_path).returncode == 0
    printed = {path.name: path.read_text() for path in tmp_path.glob("*") if path.name.isdigit()}
    assert printed == {"2": "hello world\n", "12": f"{tmp_path}\n"}


def test_a_command_that_fails_ends_the_script_and_is_named_with_its_line(tmp_path: Path) -> None:
    page = PAGE.replace('print("indented")', "pass").replace("echo ", "false\necho ")
    assert ran(script(page, javascript=False), tmp_path).returncode == 1
    assert (tmp_path / "failed").read_text() == "line 4: false\n"
    assert not (tmp_path / "2").read_text()


FAILING = """# Page
```sh
echo "darkroom: no" >&2; COMMAND
```

```text
darkroom: no
```

```sh
echo after
```
"""


def test_an_example_that_shows_an_error_fails_and_the_next_one_is_run(tmp_path: Path) -> None:
    page = FAILING.replace("COMMAND", "(exit 2)")
    assert ran(script(page, javascript=False), tmp_path).returncode == 0
    assert (tmp_path / "9").read_text() == "after\n"


def test_an_example_that_shows_an_error_but_succeeds_ends_the_script(tmp_path: Path) -> None:
    page = FAILING.replace("COMMAND", "true")
    assert ran(script(page, javascript=False), tmp_path).returncode == 1
    assert (tmp_path / "failed").read_text() == "line 4: no error\n"


def test_an_example_in_javascript_is_left_out_where_node_is_missing() -> None:
    assert "console.log" in script(PAGE, javascript=True)
    assert "console.log" not in script(PAGE, javascript=False)


def test_what_a_page_leaves_out_of_json_may_be_anything() -> None:
    shown = '{"a":1, …,"b":[…],"c":{"d":"half …"},"e":…}\n{"f":[1, …]}'
    assert documents(shown) == [{"a": 1, "b": [], "c": {"d": "half …"}, "e": "…"}, {"f": [1]}]
    printed = '{"a":1,"x":2,"b":[3],"c":{"d":"half a\\nloaf"},"e":null}\n{"f":[1,2]}'
    assert not differences("json", shown, printed)


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


def test_values_that_vary_and_orders_of_records_are_not_compared() -> None:
    shown = '{"index":1,"score":0.5}\n{"index":0,"timing":{"decode":1.5},"share":0.25}'
    printed = '{"index":0,"timing":{},"share":0.75}\n{"index":1,"score":0.75}'
    assert not differences("json", shown, printed)


def test_lines_are_compared_in_their_order_and_without_their_numbers() -> None:
    printed = "HTTP/1.1 200 OK\r\ndate: today\r\nserver-timing: decode;dur=1.25\r\n"
    assert not differences("text", "HTTP/1.1 200 OK\n…\nserver-timing: decode;dur=7", printed)
    assert differences("text", "date: today\nHTTP/1.1 200 OK", printed)
    assert differences("text", "HTTP/1.1 200 Fine", printed)
