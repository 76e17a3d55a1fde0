"""Compare two records of `tests.golden.record`; the exit code is 1 where they differ.

`python -m tests.golden.compare A B` prints each difference with its path and both values.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHOWN = 160
"""Characters of a value that are printed."""


def main() -> int:
    """Compare the two files that are the arguments."""
    if len(sys.argv) != 3:
        print("usage: python -m tests.golden.compare A B", file=sys.stderr)
        return 2
    first, second = (json.loads(Path(name).read_text()) for name in sys.argv[1:])
    found = list(differences(first, second))
    for path, before, after in found:
        print(f"{path}\n  - {_shown(before)}\n  + {_shown(after)}")
    print(f"{len(first)} answers, {len(second)} answers, {len(found)} differences")
    return 1 if found or not first else 0


def differences(first: Any, second: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path and both values of every difference; None stands for a missing value."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted(first.keys() | second.keys()):
            yield from differences(first.get(key), second.get(key), f"{path} / {key}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, each in enumerate(zip(first, second, strict=True)):
            yield from differences(*each, f"{path}[{index}]")
    elif first != second:
        yield path.removeprefix(" / "), first, second


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


if __name__ == "__main__":
    sys.exit(main())
