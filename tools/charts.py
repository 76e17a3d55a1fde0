"""Bar charts and line charts as SVG text; equal numbers give equal bytes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape

WIDTH = 760
"""Width of all charts, in pixels."""

STYLE = (
    "text { font-family: sans-serif; font-size: 12.5px; fill: #1b1f24; } "
    ".title { font-weight: bold; font-size: 14px; } .small { font-size: 11.5px; fill: #57606a; }"
)
GRID, INK = "#e3e7eb", "#57606a"

OURS, BLUE, GREY, PALE = "#b5301c", "#0b5cad", "#66707a", "#a3abb3"
"""Colours: that of Darkroom, and those of what it is compared with."""

Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from 0 to `low`, in a paler colour to `high`, and the text at its end."""

    label: str
    low: float
    high: float
    text: str
    colour: str = OURS


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points (x, y), with its name in the legend."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str = OURS
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A line chart: the names of its axes, and whether their scales are logarithmic."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False


def bars(
    title: str,
    unit: str,
    items: Sequence[Bar],
    *,
    left: int = 220,
    step: int = 26,
    most: float = math.inf,
) -> str:
    """Return horizontal bars below each other; `left` pixels are for their labels.

    Bars longer than `most` end there; their texts say how long they are.
    """
    top, height = 44, len(items) * step
    most = min(most, max(item.high for item in items))
    scale = _linear(0, _ceiling(most), left, WIDTH - 90)
    body = [_text(left, 20, title, "title")]
    for tick in _ticks(0, most):
        body += _vertical(scale(tick), top, top + height, f"{tick:g}")
    for number, item in enumerate(items):
        cut = replace(item, low=min(item.low, most), high=min(item.high, most))
        body += _bar(cut, top + number * step, step, left, scale)
    body.append(_text((left + WIDTH - 90) / 2, top + height + 34, unit, "small", "middle"))
    return _picture(title, top + height + 46, body)


def _bar(item: Bar, top: float, step: int, left: int, scale: Scale) -> Iterator[str]:
    middle, thick = top + step / 2, step * 0.62
    for value, opacity in ((item.high, 0.45), (item.low, 1)):
        size = f'width="{scale(value) - left:.1f}" height="{thick:.1f}"'
        place = f'x="{left}" y="{middle - thick / 2:.1f}"'
        yield f'<rect {place} {size} fill="{item.colour}" opacity="{opacity}"/>'
    yield _text(left - 8, middle + 4, item.label, "", "end")
    yield _text(scale(item.high) + 6, middle + 4, item.text, "small")


def panels(*charts: Panel, height: int = 240) -> str:
    """Return line charts below each other, each with its legend."""
    body: list[str] = []
    gap, left, right = 118, 78, WIDTH - 24
    for number, chart in enumerate(charts):
        top = 44 + number * (height + gap)
        body += _panel(chart, left, right, top, top + height)
    title = "; ".join(chart.title for chart in charts)
    return _picture(title, len(charts) * (height + gap) - 16, body)


def _panel(chart: Panel, left: int, right: int, top: int, bottom: int) -> Iterator[str]:
    points = [point for line in chart.lines for point in line.points]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    across, x_ticks = _axis(xs, left, right, log=chart.log_x)
    up, y_ticks = _axis(ys, bottom, top, log=chart.log_y)
    yield _text(left, top - 24, chart.title, "title")
    for tick in x_ticks:
        yield from _vertical(across(tick), top, bottom, f"{tick:g}")
    for tick in y_ticks:
        yield _stroke(left, up(tick), right, up(tick), GRID)
        yield _text(left - 8, up(tick) + 4, f"{tick:g}", "small", "end")
    yield _text(right, bottom + 34, chart.x, "small", "end")
    yield _text(left, top - 8, chart.y, "small")
    for number, line in enumerate(chart.lines):
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        places = [(across(x), up(y)) for x, y in line.points]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        style = f'fill="none" stroke="{line.colour}" stroke-width="2"{dash}'
        yield f'<polyline points="{drawn}" {style}/>'
        for x, y in places:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{line.colour}"/>'
        legend = left + number * 168
        yield _stroke(legend, bottom + 50, legend + 22, bottom + 50, line.colour, dash)
        yield _text(legend + 28, bottom + 54, line.name, "small")


def _axis(
    values: Sequence[float], start: float, end: float, *, log: bool
) -> tuple[Scale, Sequence[float]]:
    """Return where values lie between two places in pixels, and the values to be marked."""
    if not log:
        return _linear(0, _ceiling(max(values)), start, end), _ticks(0, max(values))
    marks = [factor * 10.0**power for power in range(-6, 9) for factor in (1, 2, 5)]
    low = max(mark for mark in marks if mark <= min(values))
    high = min(mark for mark in marks if mark >= max(values))
    scale = _linear(math.log10(low), math.log10(high), start, end)
    return lambda value: scale(math.log10(value)), [m for m in marks if low <= m <= high]


def _linear(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _step(most: float) -> float:
    """Return the distance of marks: 1, 2 or 5 times a power of ten, at most 8 marks to `most`."""
    power = 10.0 ** math.floor(math.log10(most / 8))
    return next(power * factor for factor in (1, 2, 5, 10) if most / (power * factor) <= 8)


def _ceiling(most: float) -> float:
    return math.ceil(most / _step(most)) * _step(most)


def _ticks(low: float, most: float) -> list[float]:
    step = _step(most)
    return [low + number * step for number in range(round(_ceiling(most) / step) + 1)]


def _vertical(x: float, top: float, bottom: float, text: str) -> Iterator[str]:
    yield _stroke(x, top, x, bottom, GRID)
    yield _text(x, bottom + 16, text, "small", "middle")


def _stroke(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}"{more}/>'


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(text)}</text>'


def _picture(title: str, height: float, body: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
    head += f'width="{WIDTH}" height="{height:.0f}" role="img">'
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    named = f"<title>{escape(title)}</title>"
    return "\n".join([head, named, f"<style>{STYLE}</style>", ground, *body, "</svg>", ""])
