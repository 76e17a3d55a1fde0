"""Draw docs/path.svg, the path of one image through the folders: `python -m tools.path_picture`.

A test compares the file with the output of this program, and the names in it with the folders.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

PICTURE = Path(__file__).parents[1] / "docs/path.svg"

WIDTH, HEIGHT = 1000, 430
"""Size of the picture, in pixels."""

BOX_WIDTH, BOX_HEIGHT = 158, 84
"""Size of a box, in pixels."""

STEP = 194
"""Distance between the left sides of two neighbouring boxes, in pixels."""

TOPS = (52, 172, 316)
"""Upper sides of the three rows of boxes, in pixels: the request, the answer, the worker."""

LEFT = 32
"""Left side of the first box, in pixels."""


@dataclass(frozen=True, slots=True)
class Box:
    """A folder in the picture: its number in the page's list, its place, and what it does.

    `row` and `column` count from 0; `lines` are at most two short lines of text.
    """

    number: str
    folder: str
    row: int
    column: int
    lines: tuple[str, ...]

    @property
    def left(self) -> int:
        """Return the left side, in pixels."""
        return LEFT + self.column * STEP

    @property
    def top(self) -> int:
        """Return the upper side, in pixels."""
        return TOPS[self.row]

    @property
    def middle(self) -> int:
        """Return the height of the middle, in pixels."""
        return self.top + BOX_HEIGHT // 2

    @property
    def centre(self) -> int:
        """Return the horizontal position of the centre, in pixels."""
        return self.left + BOX_WIDTH // 2


CONNECTIONS = Box("1", "app/connections", 0, 0, ("limits of time,", "size and number"))
ROUTES = Box("2", "app/routes", 0, 1, ("the handler; a permit", "from app/admission"))
INTAKE = Box("3", "app/intake", 0, 2, ("options and images", "of the request"))
FETCH = Box("4", "app/fetch", 0, 3, ("downloads URLs that", "app/urls.py accepts"))
DECODE = Box("5", "app/pipeline", 0, 4, ("bytes to pixels, with", "app/decoders"))
SEAM = Box("6", "workers/backends", 1, 4, ("the seam: a job in,", "an outcome out"))
SCHEDULING = Box("7", "workers/scheduling", 2, 4, ("forms micro-batches", ""))
ENGINES = Box("7", "workers/engines", 2, 3, ("labels, filters from", "workers/filters"))
ENCODE = Box("8", "app/pipeline", 1, 3, ("pixels to bytes", "(filtered images)"))
RESPONSES = Box("9", "app/responses", 1, 2, ("records, streams,", "archives"))

BOXES = (
    CONNECTIONS,
    ROUTES,
    INTAKE,
    FETCH,
    DECODE,
    SEAM,
    SCHEDULING,
    ENGINES,
    ENCODE,
    RESPONSES,
)

ARROWS = tuple(pairwise(BOXES))
"""Each box leads to the next one; no step returns to an earlier folder of a request."""

STYLE = """
    text { font-family: sans-serif; font-size: 13px; fill: #1b1f24; }
    .folder { font-family: monospace; font-weight: bold; font-size: 12.5px; }
    .number { font-weight: bold; fill: #ffffff; }
    .small { font-size: 12px; fill: #444c56; }
"""


def picture() -> str:
    """Return the picture as SVG text."""
    body = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *_area("front end: one or several processes", 14, 16, 252, "#eef4fb"),
        *_area(
            "worker: a process for each GPU, or threads of the same process",
            14,
            282,
            134,
            "#f3f0fa",
        ),
        *(line for pair in ARROWS for line in _arrow(*pair)),
        *_answer(),
        *(line for box in BOXES for line in _drawn(box)),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    title = "<title>The path of one image through the folders of Darkroom</title>"
    arrow = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#57606a"/></marker></defs>'
    )
    return "\n".join([head, title, f"<style>{STYLE}</style>", arrow, *body, "</svg>", ""])


def _area(title: str, left: int, top: int, height: int, fill: str) -> Iterator[str]:
    """Yield the background of one kind of process."""
    size = f'width="{WIDTH - 2 * left}" height="{height}" rx="10"'
    yield f'<rect x="{left}" y="{top}" {size} fill="{fill}"/>'
    yield f'<text class="small" x="{left + 14}" y="{top + 22}">{escape(title)}</text>'


def _drawn(box: Box) -> Iterator[str]:
    """Yield a box with its number, its folder and its lines."""
    size = f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"'
    yield f'<rect x="{box.left}" y="{box.top}" {size} fill="#ffffff" stroke="#57606a"/>'
    yield f'<circle cx="{box.left}" cy="{box.top}" r="11" fill="#0b5cad"/>'
    number = f'x="{box.left}" y="{box.top + 5}" text-anchor="middle"'
    yield f'<text class="number" {number}>{box.number}</text>'
    place = f'x="{box.left + 12}"'
    yield f'<text class="folder" {place} y="{box.top + 26}">{escape(box.folder)}</text>'
    for index, line in enumerate(filter(None, box.lines)):
        yield f'<text class="small" {place} y="{box.top + 48 + 18 * index}">{escape(line)}</text>'


def _arrow(first: Box, second: Box) -> Iterator[str]:
    """Yield the arrow between two boxes of one row, or of one column."""
    if first.row == second.row and first.column < second.column:
        ends = (first.left + BOX_WIDTH, first.middle, second.left, second.middle)
    elif first.row == second.row:
        ends = (first.left, first.middle, second.left + BOX_WIDTH, second.middle)
    elif first.row < second.row:
        ends = (first.centre, first.top + BOX_HEIGHT, second.centre, second.top)
    else:
        ends = (first.centre, first.top, second.centre, second.top + BOX_HEIGHT)
    yield _line(*ends)


def _answer() -> Iterator[str]:
    """Yield the last arrow: the answer leaves by the connection that the request came on."""
    yield _line(RESPONSES.left, RESPONSES.middle, CONNECTIONS.centre, RESPONSES.middle, tip=False)
    yield _line(
        CONNECTIONS.centre, RESPONSES.middle, CONNECTIONS.centre, CONNECTIONS.top + BOX_HEIGHT
    )
    text = f'x="{CONNECTIONS.left}" y="{RESPONSES.middle + 20}"'
    yield f'<text class="small" {text}>the answer, in pieces</text>'


def _line(x1: int, y1: int, x2: int, y2: int, *, tip: bool = True) -> str:
    marker = ' marker-end="url(#tip)"' if tip else ""
    ends = f'x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"'
    return f'<line {ends} stroke="#57606a" stroke-width="1.6"{marker}/>'


if __name__ == "__main__":
    PICTURE.write_text(picture())
