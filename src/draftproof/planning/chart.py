"""Concurrent requests over context length, with and without speculation: as text and as SVG.

Called by the command. Draws two series of whole numbers over lengths that double; no library (docs/adr).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from draftproof.planning.memory import Point

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 56, 60
_COLOURS = {"without": "#666666", "speculative": "#1f6feb"}


def text_chart(points: Sequence[Point], longest: int | None = None, width: int = 40) -> list[str]:
    """Two bars per length, on a scale of square roots so that small numbers can be seen. Lengths beyond `longest`, the
    model's positions, are marked."""
    most = max((max(point.without, point.speculative) for point in points), default=0)
    lines = [
        "requests at the same time, by memory (░ without speculation, █ with; lengths of bars are square roots)"
    ]
    for point in points:
        for sign, count, label in (
            ("░", point.without, f"{point.context:>8}{'*' if _is_beyond(point, longest) else ' '}"),
            ("█", point.speculative, " " * 9),
        ):
            length = round(width * math.sqrt(count / most)) if most else 0
            lines.append(f"{label}{sign * length}{' ' if length else ''}{count}")
    if any(_is_beyond(point, longest) for point in points):
        lines.append(f"       * beyond the model's {longest:,} positions")
    return lines


def _is_beyond(point: Point, longest: int | None) -> bool:
    return longest is not None and point.context > longest


def svg_chart(points: Sequence[Point], title: str, longest: int | None = None) -> str:
    """A picture of its own: both axes are logarithmic; a length at which nothing fits ends the line, and what is beyond
    `longest`, the model's positions, is shaded."""
    most = max((max(point.without, point.speculative) for point in points), default=1)
    across = _Axis(points[0].context, max(points[-1].context, 2 * points[0].context), _LEFT, _WIDTH - _RIGHT)
    up = _Axis(1, max(2, most), _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>',
        *_beyond(points, across, longest),
        *_grid(points, across, up, most),
    ]
    for key, words in (("without", "without speculation"), ("speculative", "with speculation")):
        parts.extend(_series(points, key, across, up))
        offset = 0 if key == "without" else 180
        parts.append(
            f'<rect x="{_LEFT + offset}" y="30" width="12" height="12" fill="{_COLOURS[key]}"/>'
            f'<text x="{_LEFT + offset + 18}" y="41">{words}</text>'
        )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


class _Axis:
    """Logarithmic, from values to places on the page."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._span = math.log(low), math.log(high) - math.log(low)
        self._start, self._length = start, end - start

    def place(self, value: float) -> float:
        return round(self._start + self._length * (math.log(value) - self._low) / self._span, 1)


def _beyond(points: Sequence[Point], across: _Axis, longest: int | None) -> list[str]:
    if longest is None or points[-1].context <= longest:
        return []
    x = max(_LEFT, across.place(longest))
    return [
        f'<rect x="{x}" y="{_TOP}" width="{round(_WIDTH - _RIGHT - x, 1)}" height="{_HEIGHT - _BOTTOM - _TOP}" '
        f'fill="#fff3e0"/><text x="{x + 4}" y="{_TOP + 14}" fill="#8a5a00">beyond {longest:,} positions</text>'
    ]


def _grid(points: Sequence[Point], across: _Axis, up: _Axis, most: int) -> list[str]:
    found, bottom = [], _HEIGHT - _BOTTOM
    tick = 1
    while tick <= max(2, most):
        y = up.place(tick)
        found.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#e5e5e5"/>')
        found.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{tick}</text>')
        tick *= 4
    for point in points:
        x = across.place(point.context)
        found.append(f'<line x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 5}" stroke="#999999"/>')
        if point.context & (point.context - 1) == 0:
            label = f"{point.context // 1024}k" if point.context >= 1024 else str(point.context)
            found.append(f'<text x="{x}" y="{bottom + 20}" text-anchor="middle">{label}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    found.append(
        f'<text x="{middle}" y="{_HEIGHT - 14}" text-anchor="middle">tokens of context per request</text>'
    )
    height = (_TOP + bottom) / 2
    found.append(
        f'<text x="16" y="{height}" text-anchor="middle" transform="rotate(-90 16 {height})">requests at once</text>'
    )
    return found


def _series(points: Sequence[Point], key: str, across: _Axis, up: _Axis) -> list[str]:
    colour = _COLOURS[key]
    shown = [(point.context, getattr(point, key)) for point in points if getattr(point, key) > 0]
    path = " ".join(f"{across.place(context)},{up.place(count)}" for context, count in shown)
    dots = [
        f'<circle cx="{across.place(context)}" cy="{up.place(count)}" r="3" fill="{colour}">'
        f"<title>{context} tokens: {count} requests</title></circle>"
        for context, count in shown
    ]
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]
