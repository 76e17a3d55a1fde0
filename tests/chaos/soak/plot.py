"""Samples as a picture in SVG: one small chart for each quantity."""

from collections.abc import Sequence

from tests.chaos.soak.samples import QUANTITIES, Sample

_WIDTH, _HEIGHT, _LEFT, _GAP = 720, 120, 70, 40


def svg(samples: Sequence[Sample], faults: Sequence[float]) -> str:
    """Return the charts, one below the other; vertical lines are the injected faults."""
    total = max(each.at for each in samples) or 1.0
    parts = []
    for number, quantity in enumerate(QUANTITIES):
        values = [float(getattr(each, quantity)) for each in samples]
        most = max(values) * 1.1 or 1.0
        top = number * (_HEIGHT + _GAP) + 24
        bottom = top + _HEIGHT
        points = " ".join(
            f"{_x(each.at, total):.1f},{bottom - value / most * _HEIGHT:.1f}"
            for each, value in zip(samples, values, strict=True)
        )
        parts += [
            f'<text x="{_LEFT}" y="{top - 8}">{quantity.replace("_", " ")}</text>',
            f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{most:.0f}</text>',
            f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" '
            'stroke="#ccc"/>',
            *(
                f'<line x1="{_x(at, total):.1f}" x2="{_x(at, total):.1f}" y1="{top}" '
                f'y2="{bottom}" stroke="#fbb"/>'
                for at in faults
            ),
            f'<polyline fill="none" stroke="#246" stroke-width="1.5" points="{points}"/>',
        ]
    height = len(QUANTITIES) * (_HEIGHT + _GAP) + 30
    parts.append(f'<text x="{_LEFT}" y="{height - 8}">0 to {total / 60:.0f} minutes</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{height}" '
        'font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


def _x(at: float, total: float) -> float:
    return _LEFT + at / total * _WIDTH
