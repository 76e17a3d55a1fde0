"""Write the table of attacks in `docs/reliability.md` from the two measured files.

`python -m tests.chaos.report` replaces what stands between the page's two markers, so that no
figure is typed by hand. A unit test compares the page with the files.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.attacks.catalogue import ATTACKS
from tests.chaos.harness.attack import NEIGHBOURS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "tests" / "bench" / "results"
BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"

_HEAD = (
    "| attack | `/livez`, worst | neighbours in time | largest error | memory | CPU | attacker "
    "| promises broken after |",
    "|---|---|---|---|---|---|---|---|",
)

Key = tuple[str, int]
Result = Mapping[str, Any]


def load(path: Path) -> dict[str, Any]:
    """Return a file of results; an empty one where nothing was measured yet."""
    if not path.exists():
        return {"attacks": []}
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def table(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the table, and the lines that state where and how its figures were measured."""
    old, new = _by_key(before["attacks"]), _by_key(after["attacks"])
    rows = [_row(key, old.get(key), new.get(key)) for key in _order({**old, **new})]
    found = _findings(old, new)
    lines = [
        *(_source("Before", before) + _source("After", after)),
        "",
        "Each cell is before → after; “–” was not measured.",
        "",
        *_HEAD,
        *rows,
    ]
    if found:
        lines += ["", "What single attacks measured beside that:", "", *_FINDINGS_HEAD, *found]
    return "\n".join(lines)


_FINDINGS_HEAD = ("| attack | figure | before | after |", "|---|---|---|---|")


def page(text: str, content: str) -> str:
    """Return the page with `content` between its markers."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{content}\n\n{END}{tail}"


def _by_key(results: Sequence[Result]) -> dict[Key, Result]:
    return {(each["attack"], each["front_ends"]): each for each in results}


def _order(results: Mapping[Key, Result]) -> list[Key]:
    names = list(ATTACKS)
    known = [key for key in results if key[0] in ATTACKS]
    return sorted(known, key=lambda key: (names.index(key[0]), key[1]))


def _name(key: Key) -> str:
    name, front_ends = key
    return f"`{name}`" + (f", {front_ends} front ends" if front_ends else "")


def _row(key: Key, old: Result | None, new: Result | None) -> str:
    about = ATTACKS[key[0]].about.rstrip(".")
    cells = [
        f"{_name(key)}: {about}",
        _both(old, new, lambda r: _seconds(r["livez_worst_s"])),
        _both(old, new, _neighbours),
        _both(old, new, lambda r: _size(r["largest_error_bytes"])),
        _both(old, new, lambda r: f"{max(0, r['memory_over_idle_mb'])} MB"),
        _both(old, new, lambda r: f"{r['cpu_s']:.0f} s"),
        _both(old, new, _attacker),
        "–" if new is None else "; ".join(new["broken"]) or "none",
    ]
    return "| " + " | ".join(cells) + " |"


def _both(old: Result | None, new: Result | None, cell: Any) -> str:
    return " → ".join("–" if r is None or "cpu_s" not in r else cell(r) for r in (old, new))


def _neighbours(result: Result) -> str:
    asked = result.get("neighbours", NEIGHBOURS)
    return f"{result['neighbours_spared']} of {asked}" if asked else "none asked"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:.0f} s"


def _size(value: int) -> str:
    return f"{value} B" if value < 10_000 else f"{value / 1e3:,.0f} kB"


def _attacker(result: Result) -> str:
    most = sorted(result["attacker"].items(), key=lambda item: -item[1])[:3]
    told = ", ".join(f"{count} × {word}" for word, count in most) or "no requests"
    return f"{told}; {_seconds(result['attacker_slowest_s'])}"


def _findings(old: Mapping[Key, Result], new: Mapping[Key, Result]) -> list[str]:
    lines = []
    for key in _order({**old, **new}):
        left, right = (r.get(key, {}).get("findings", {}) for r in (old, new))
        for name in dict.fromkeys([*left, *right]):
            if not (left.get(name) or right.get(name)):
                continue  # no rule was broken, before and after
            cells = (_figure(left.get(name)), _figure(right.get(name)))
            lines.append(f"| {_name(key)} | {name.replace('_', ' ')} | {cells[0]} | {cells[1]} |")
    return lines


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _source(word: str, report: Mapping[str, Any]) -> list[str]:
    if not report["attacks"]:
        return [f"- {word}: not measured yet."]
    note = f", {report['note']}" if report.get("note") else ""
    where = f"{report['cores']} cores ({report['machine']}{note}), {report['when']}"
    return [f"- {word}: commit `{report['commit']}`, {where}."]


def main() -> int:
    """Rewrite the page; the exit code is 0."""
    content = table(
        load(RESULTS / "attacks_before.json"),
        load(RESULTS / "attacks_after.json"),
    )
    PAGE.write_text(page(PAGE.read_text(), content))
    return 0


if __name__ == "__main__":
    sys.exit(main())
