"""Hand-written SVG plots: horizontal bars, and columns over time.

A few bars do not justify a library of 40 MB. Pages, browsers and reviews show SVG text directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH = 760
ROW = 18
LEFT = 170
RIGHT = 90
TOP = 46
HEIGHT = 220
COLOURS = ("#2b6cb0", "#dd6b20")


def bars(
    title: str,
    values: Mapping[str, Sequence[float]],
    names: Sequence[str],
    unit: str,
    kinds: Mapping[str, int] | None = None,
) -> str:
    """Return a bar for each value of each label; ``names`` describes the values of a label.

    With ``kinds`` a label has one value, and ``names`` is indexed by the label's kind.
    """
    most = max((value for each in values.values() for value in each), default=0) or 1
    scale = (WIDTH - LEFT - RIGHT) / most
    thick = ROW / (max(1, len(names)) if kinds is None else 1)
    parts = []
    for row, (label, each) in enumerate(values.items()):
        y = TOP + row * (ROW + 6)
        parts.append(_text(LEFT - 8, y + ROW - 5, label, "end"))
        for place, value in enumerate(each):
            top = y + place * thick
            colour = COLOURS[place if kinds is None else kinds[label]]
            parts.append(_box(LEFT, top, value * scale, thick - 1, colour))
        shown = " / ".join(f"{value:,.1f}".removesuffix(".0") for value in each)
        parts.append(_text(LEFT + max(each) * scale + 6, y + ROW - 5, shown))
    height = TOP + len(values) * (ROW + 6) + 14
    return _whole(title, names, unit, parts, height)


def columns(
    title: str, values: Sequence[Sequence[float]], names: Sequence[str], unit: str, span: str
) -> str:
    """Return a column for each time step; the second value of a step is drawn inside the first."""
    most = max((value for each in values for value in each), default=0) or 1
    wide = (WIDTH - LEFT) / max(1, len(values))
    parts = [_text(LEFT - 8, TOP + 10, f"{most:,.0f}", "end")]
    for step, each in enumerate(values):
        for place, value in enumerate(each):
            high = HEIGHT * value / most
            top = TOP + HEIGHT - high
            parts.append(_box(LEFT + step * wide, top, wide - 1, high, COLOURS[place]))
    parts.append(_text(LEFT - 8, TOP + HEIGHT, "0", "end"))
    parts.append(_text(LEFT, TOP + HEIGHT + 18, span))
    return _whole(title, names, unit, parts, TOP + HEIGHT + 30)


def _whole(title: str, names: Sequence[str], unit: str, parts: Sequence[str], height: float) -> str:
    legend = []
    x = 12.0
    for place, name in enumerate(names):
        legend += [_box(x, 28, 10, 10, COLOURS[place]), _text(x + 15, 37, f"{name} ({unit})")]
        x += 40 + 7 * len(f"{name} ({unit})")
    body = "\n".join([_text(12, 18, title, weight="bold"), *legend, *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _box(x: float, y: float, wide: float, high: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, wide):.1f}" '
        f'height="{max(0.0, high):.1f}" fill="{colour}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )
