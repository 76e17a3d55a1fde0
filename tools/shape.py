"""Measure the shape of a checkout: folders, lengths, comments, docstrings, columns of CUDA.

`python tools/shape.py [CHECKOUT …]` prints a Markdown table with a column for each checkout, then
the same as JSON. It counts `app`, `models` and `workers`; tests and tools are not the service.
"""

import ast
import io
import json
import re
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PACKAGES = ("app", "models", "workers")

CUDA_COLUMNS = 100

DIRECTIVE = re.compile(r"#\s*(type:|noqa|pragma|!|fmt:)")
"""Directives for tools, which explain nothing to a reader and are not counted as comments."""

UNITS = re.compile(
    r"\b(bytes?|pixels?|samples?|seconds?|s|ms|MiB|KiB|GB|bits?|images?|columns?|rows?|levels?"
    r"|exit code)\b|\([HWCN](, ?[HWCN0-9]+)+\)|uint8|float(16|32|64)|int(8|16|32|64)|[0-9] ?%"
)
"""Words that state the unit, shape or type of a value."""

ERRORS = re.compile(r"\b[Rr]aises?\b|\b[A-Z]\w*(Error|Exception)\b|\berrors?\b")

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Shape:
    """The figures of one checkout; lengths are in lines, shares in percent."""

    python_files: int
    folders: int
    most_files_in_a_folder: str
    file_length_median: float
    file_length_p90: float
    file_length_longest: str
    functions: int
    function_length_median: float
    function_length_p90: float
    function_length_longest: str
    comment_lines_percent: float
    docstring_lines_percent: float
    public_docstrings: int
    docstrings_with_units_percent: float
    docstrings_with_errors_percent: float
    docstrings_with_either_percent: float
    cuda_files: int
    cuda_lines: int
    cuda_comment_lines_percent: float
    cuda_lines_over_100_columns: int


def main() -> int:
    """Print the shapes of the checkouts that are given as arguments, or of this one."""
    roots = [Path(name) for name in sys.argv[1:]] or [Path(__file__).parents[1]]
    shapes = {str(root): asdict(measured(root)) for root in roots}
    print(table(shapes))
    print()
    print(json.dumps({"shapes": shapes, "folders": {str(r): folders(r) for r in roots}}, indent=1))
    return 0


def table(shapes: dict[str, dict[str, object]]) -> str:
    """Return the figures as a Markdown table with a column for each checkout."""
    columns = list(shapes.values())
    lines = [f"| | {' | '.join(shapes)} |", f"|---|{'---|' * len(shapes)}"]
    for name in columns[0]:
        values = (str(each[name]) for each in columns)
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(values)} |")
    return "\n".join(lines)


def folders(root: Path) -> dict[str, int]:
    """Count the Python and CUDA files of each folder, without those of its subfolders."""
    found = Counter(
        str(path.parent.relative_to(root))
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.suffix in (".py", ".cu", ".cuh")
    )
    return dict(sorted(found.items()))


def measured(root: Path) -> Shape:
    """Measure one checkout."""
    files = sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))
    texts = {path: path.read_text("utf-8") for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lengths = {str(p.relative_to(root)): len(text.splitlines()) for p, text in texts.items()}
    functions = {
        f"{path.relative_to(root)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, Definition)
    }
    docstrings = [each for tree in trees.values() for each in _public_docstrings(tree)]
    units = [bool(UNITS.search(each)) for each in docstrings]
    errors = [bool(ERRORS.search(each)) for each in docstrings]
    cuda = [
        path.read_text("utf-8").splitlines()
        for package in PACKAGES
        for path in (root / package).rglob("*.cu*")
        if path.suffix in (".cu", ".cuh")
    ]
    lines = [line for text in cuda for line in text]
    counts = folders(root)
    fullest = max(counts, key=lambda name: counts[name])
    return Shape(
        python_files=len(files),
        folders=len(counts),
        most_files_in_a_folder=f"{counts[fullest]} ({fullest})",
        file_length_median=statistics.median(lengths.values()),
        file_length_p90=_p90([*lengths.values()]),
        file_length_longest=_longest(lengths),
        functions=len(functions),
        function_length_median=statistics.median(functions.values()),
        function_length_p90=_p90([*functions.values()]),
        function_length_longest=_longest(functions),
        comment_lines_percent=_percent(sum(map(_comments, texts.values())), sum(lengths.values())),
        docstring_lines_percent=_percent(
            sum(map(_docstring_lines, trees.values())), sum(lengths.values())
        ),
        public_docstrings=len(docstrings),
        docstrings_with_units_percent=_percent(sum(units), len(docstrings)),
        docstrings_with_errors_percent=_percent(sum(errors), len(docstrings)),
        docstrings_with_either_percent=_percent(
            sum(a or b for a, b in zip(units, errors, strict=True)), len(docstrings)
        ),
        cuda_files=len(cuda),
        cuda_lines=len(lines),
        cuda_comment_lines_percent=_percent(
            sum(line.lstrip().startswith("//") for line in lines), len(lines)
        ),
        cuda_lines_over_100_columns=sum(len(line) > CUDA_COLUMNS for line in lines),
    )


def _public_docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of public functions, methods and classes, but not those of modules."""
    for node in ast.walk(tree):
        if isinstance(node, Definition | ast.ClassDef) and not node.name.startswith("_"):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring


def _comments(text: str) -> int:
    """Count the lines that are a comment or end in one, without directives for tools."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(t.type == tokenize.COMMENT and not DIRECTIVE.match(t.string) for t in tokens)


def _docstring_lines(tree: ast.Module) -> int:
    """Count the lines of all docstrings, those of constants and attributes included."""
    return sum(
        (node.end_lineno or 0) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _p90(values: Sequence[int]) -> float:
    return statistics.quantiles(values, n=10, method="inclusive")[-1]


def _longest(lengths: dict[str, int]) -> str:
    name = max(lengths, key=lambda each: lengths[each])
    return f"{lengths[name]} ({name})"


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


if __name__ == "__main__":
    sys.exit(main())
