"""Boxes in layers with arrows from top to bottom, as an SVG that is readable on a light and on a dark page.

The method is Sugiyama's. The longest path downwards decides the layer of a box. An arrow over several layers bends at a
point in each. The order in a layer follows the mean of the neighbours, as long as that leaves fewer crossings. Then
each box moves above its neighbours as far as there is room. The result is deterministic, so that a test can compare it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from html import escape
from itertools import pairwise

Arrow = tuple[str, str]
Layers = list[list[str]]  # from top to bottom, each from left to right

WIDTH, HEIGHT = 224, 62  # size of a box
ACROSS, DOWN = 20, 44  # gap between boxes, and between layers
BEND = 16  # width that a bend takes in its layer
MARGIN, TOP = 28, 64
_SWEEPS = 24
_STRAIGHT = 8

STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de }  .box { fill: #f6f8fa; stroke: #d0d7de }
  .name { fill: #1f2328; font: 600 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
  .text { fill: #57606a; font: 11px system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
  .title { fill: #1f2328; font: 600 15px system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
  .arrow { fill: none; stroke: #8c959f; stroke-width: 1.4 }  .head { fill: #8c959f }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #30363d }  .box { fill: #161b22; stroke: #3d444d }
    .name, .title { fill: #e6edf3 }  .text { fill: #9198a1 }
    .arrow { stroke: #6e7681 }  .head { fill: #6e7681 }
  }
"""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A box with a name and a text of at most two lines of 34 characters."""

    name: str
    text: str


def render(title: str, boxes: Sequence[Box], arrows: Set[Arrow], *, made_by: str) -> str:
    """Return the SVG. The arrows must have no cycle; leave out those that a longer path replaces."""
    layers, edges = _bent(_layers([box.name for box in boxes], arrows), arrows)
    layers = _ordered(layers, edges)
    names = {box.name for box in boxes}
    widths = {node: WIDTH if node in names else BEND for layer in layers for node in layer}
    x = _placed(layers, edges, widths)
    y = {node: TOP + number * (HEIGHT + DOWN) for number, layer in enumerate(layers) for node in layer}
    width = round(max(x[node] + widths[node] / 2 for node in x)) + MARGIN
    height = TOP + len(layers) * (HEIGHT + DOWN) - DOWN + MARGIN
    paths = [_path(line) for line in _lines(arrows, edges, x, y)]
    colours = {node: round(215 + 110 * number / len(layers)) for number, layer in enumerate(layers) for node in layer}
    body = [_box(box, round(x[box.name] - WIDTH / 2), y[box.name], colours[box.name]) for box in boxes]
    marker = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0 8 4 0 8z"/></marker>'
    )
    return "\n".join([*head(title, width, height, made_by=made_by, marker=marker), *paths, *body, "</svg>\n"])


def head(title: str, width: int, height: int, *, made_by: str, style: str = STYLE, marker: str = "") -> Iterator[str]:
    """Yield the first lines of an SVG: its size, styles, background and title."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img">'
    )
    yield f"<!-- Made by `{made_by}`. -->"
    yield f"<title>{escape(title)}</title>"
    yield f"<style>{style}</style>"
    if marker:
        yield marker
    yield f'<rect class="page" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10"/>'
    yield f'<text class="title" x="{MARGIN}" y="38">{escape(title)}</text>'


def _layers(names: Sequence[str], arrows: Set[Arrow]) -> Layers:
    """Return the boxes by the length of their longest path downwards; the order of `names` in each layer."""
    depth: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in depth:
            depth[name] = 1 + max((of(b) for a, b in arrows if a == name), default=-1)
        return depth[name]

    deepest = max(map(of, names))
    return [[name for name in names if depth[name] == level] for level in range(deepest, -1, -1)]


def _bend(arrow: Arrow, level: int | str) -> str:
    return f"{arrow[0]}>{arrow[1]}@{level}"


def _bent(layers: Layers, arrows: Set[Arrow]) -> tuple[Layers, list[Arrow]]:
    """Return the layers with a bend wherever an arrow crosses one, and the pieces of the arrows."""
    level = {name: number for number, layer in enumerate(layers) for name in layer}
    bent, pieces = [list(layer) for layer in layers], list[Arrow]()
    for arrow in sorted(arrows):
        start, end = (level[name] for name in arrow)
        bends = [_bend(arrow, number) for number in range(start + 1, end)]
        for number, bend in enumerate(bends, start + 1):
            bent[number].append(bend)
        pieces += pairwise([arrow[0], *bends, arrow[1]])
    return bent, pieces


def _neighbours(edges: Iterable[Arrow]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for a, b in edges:
        above.setdefault(b, []).append(a)
        below.setdefault(a, []).append(b)
    return above, below


def _ordered(layers: Layers, edges: Sequence[Arrow]) -> Layers:
    """Return the order with the fewest crossings that the sweeps find."""
    above, below = _neighbours(edges)
    best, fewest = layers, _crossings(layers, edges)
    for sweep in range(_SWEEPS):
        layers = [list(layer) for layer in layers]
        known, order = (below, range(len(layers) - 2, -1, -1)) if sweep % 2 else (above, range(1, len(layers)))
        for number in order:
            at = {node: (i + 0.5) / len(layer) for layer in layers for i, node in enumerate(layer)}
            layers[number].sort(key=lambda node: _mean([at[n] for n in known.get(node, [])], at[node]))
        layers = _swapped(layers, edges)
        if (count := _crossings(layers, edges)) < fewest:
            best, fewest = [list(layer) for layer in layers], count
    return best


def _swapped(layers: Layers, edges: Sequence[Arrow]) -> Layers:
    """Exchange neighbours in a layer as long as that removes a crossing."""
    fewest, improved = _crossings(layers, edges), True
    while improved:
        improved = False
        for layer in layers:
            for i in range(len(layer) - 1):
                layer[i : i + 2] = reversed(layer[i : i + 2])
                if (count := _crossings(layers, edges)) < fewest:
                    fewest, improved = count, True
                else:
                    layer[i : i + 2] = reversed(layer[i : i + 2])
    return layers


def _crossings(layers: Layers, edges: Sequence[Arrow]) -> int:
    at = {node: (number, i) for number, layer in enumerate(layers) for i, node in enumerate(layer)}
    by_layer: dict[int, list[tuple[int, int]]] = {}
    for a, b in edges:
        by_layer.setdefault(at[a][0], []).append((at[a][1], at[b][1]))
    return sum(
        (a - c) * (b - d) < 0 for pieces in by_layer.values() for i, (a, b) in enumerate(pieces) for c, d in pieces[:i]
    )


def _placed(layers: Layers, edges: Sequence[Arrow], widths: Mapping[str, int]) -> dict[str, float]:
    """Return the middle of each box and bend: over its neighbours as far as the order and the widths allow."""
    above, below = _neighbours(edges)
    x: dict[str, float] = {}
    # A bend goes to the mean of all bends of its arrow, and moves boxes aside: a long arrow becomes straight.
    weights = {node: _STRAIGHT if width == BEND else 1 for node, width in widths.items()}
    near = {node: [*above.get(node, ()), *below.get(node, ())] for node in widths}
    for node in near:
        if weights[node] > 1:
            near[node] += _STRAIGHT * [other for other in near if other.startswith(node.partition("@")[0] + "@")]
    for layer in layers:
        x |= _apart(dict.fromkeys(layer, 0.0), widths, weights)
    for sweep in range(8 * _SWEEPS):
        for layer in layers if sweep % 2 else reversed(layers):
            x |= _apart({node: _mean([x[n] for n in near[node]], x[node]) for node in layer}, widths, weights)
    left = min(x[node] - widths[node] / 2 for node in x)
    return {node: round(at - left + MARGIN, 1) for node, at in x.items()}


def _apart(wanted: Mapping[str, float], widths: Mapping[str, int], weights: Mapping[str, int]) -> dict[str, float]:
    """Return positions in the order of `wanted` without overlap; minimize the weighted sum of squared distances."""
    offsets = [0.0]
    for a, b in pairwise(wanted):
        offsets.append(offsets[-1] + (widths[a] + widths[b]) / 2 + ACROSS)
    # Minus its offset, no position may be left of the previous one: isotonic regression, by pooling neighbours.
    pools: list[tuple[float, int, int]] = []  # position, weight, count
    for node, offset in zip(wanted, offsets, strict=True):
        pools.append((wanted[node] - offset, weights[node], 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (left, v, n), (right, w, m) = pools[-2:]
            pools[-2:] = [((left * v + right * w) / (v + w), v + w, n + m)]
    flat = [at for at, _, count in pools for _ in range(count)]
    return {node: at + offset for node, at, offset in zip(wanted, flat, offsets, strict=True)}


def _lines(
    arrows: Set[Arrow], edges: Sequence[Arrow], x: Mapping[str, float], y: Mapping[str, int]
) -> Iterator[list[tuple[float, float]]]:
    """Yield the points of each arrow. The arrows of one box leave and arrive side by side."""
    above, below = _neighbours(edges)
    for arrow in sorted(arrows):
        bends = [node for node in y if node.startswith(_bend(arrow, ""))]
        nodes = [arrow[0], *bends, arrow[1]]
        start = x[arrow[0]] + _port(nodes[1], below[arrow[0]], x)
        end = x[arrow[1]] + _port(nodes[-2], above[arrow[1]], x)
        points = [(start, float(y[arrow[0]] + HEIGHT))]
        for bend in bends:
            points += [(x[bend], float(y[bend])), (x[bend], float(y[bend] + HEIGHT))]
        yield [*points, (end, float(y[arrow[1]]))]


def _port(node: str, others: Sequence[str], x: Mapping[str, float]) -> float:
    """Return the distance from the middle of a box at which the arrow to or from `node` begins."""
    order = sorted(others, key=lambda other: x[other])
    return (order.index(node) - (len(order) - 1) / 2) * min(28, (WIDTH - 40) / len(order))


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return a curve through points that are alternately the lower and the upper end of a piece between two layers."""
    parts = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for number, ((a, b), (c, d)) in enumerate(pairwise(points)):
        if number % 2:
            parts.append(f"L{c:g} {d:g}")
        else:
            half = round((b + d) / 2, 1)
            parts.append(f"C{a:g} {half:g} {c:g} {half:g} {c:g} {d:g}")
    return f'<path class="arrow" marker-end="url(#head)" d="{" ".join(parts)}"/>'


def _box(box: Box, left: int, top: int, hue: int) -> str:
    if len(lines := textwrap.wrap(box.text, 34)) > 2:
        raise ValueError(f"{box.name}: {box.text!r} takes {len(lines)} lines of the box, which has room for 2")
    start = top + (40 if len(lines) > 1 else 42)
    texts = "".join(
        f'<text class="text" x="{left + 14}" y="{start + 14 * number}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<rect class="box" x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        f'<rect x="{left}" y="{top}" width="5" height="{HEIGHT}" rx="2.5" fill="hsl({hue} 60% 55%)"/>'
        f'<text class="name" x="{left + 14}" y="{top + 21}">{escape(box.name)}</text>{texts}'
    )


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
