"""Draw points as lines in an SVG, without a package: a plotting package is larger than all other tools together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, MARGIN = 640, 360, 60
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")


def render(title: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return an SVG of some lines of (x, y), by their names, both axes from 0."""
    points = [point for line in lines.values() for point in line]
    far, high = (max(point[i] for point in points) or 1 for i in (0, 1))

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = x / far * (WIDTH - 2 * MARGIN), y / high * (HEIGHT - 2 * MARGIN)
        return round(MARGIN + across, 1), round(HEIGHT - MARGIN - up, 1)

    parts = [_text(WIDTH / 2, 24, title, "middle")]
    for i in range(5):
        x, y = place(far * i / 4, high * i / 4)
        parts.append(_text(x, HEIGHT - MARGIN + 20, f"{far * i / 4:,.0f}", "middle"))
        parts.append(_text(MARGIN - 8, y + 4, f"{high * i / 4:.2f}", "end"))
        parts.append(f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y}" y2="{y}" stroke="#ccc"/>')
    for number, ((name, line), colour) in enumerate(zip(lines.items(), COLOURS, strict=False)):
        placed = [place(*point) for point in sorted(line)]
        path = " ".join(f"{x},{y}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in placed]
        parts.append(_text(MARGIN + 12, MARGIN + 4 + 18 * number, name, "start", colour))
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<rect {size} fill="white"/>\n{body}\n</svg>\n'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333") -> str:
    style = f'font-family="sans-serif" font-size="13" text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'
