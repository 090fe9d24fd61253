"""The diagrams of docs/images, from the plan, the tables and the pages: `./run python -m docs.site.diagrams`.

flow.svg shows the steps of an operator and what they read, matrix.svg which cells are legal, and reruns.svg which steps
each change runs, as docs/architecture.md lists them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from docs.site.imports import Arrow, reduced
from docs.site.layered import MARGIN, STYLE, TOP, Box, head, render
from opmatrix.engine.plan_cache import load_or_plan
from opmatrix.project.cells import ORT, TORCH, TORCH_EXPORTERS, Cell, Choice, why_unreadable, why_unsupported
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step

ROOT = Path(__file__).parents[2]
FOLDER = Path("docs/images")
COMMAND = "./run python -m docs.site.diagrams"
OPERATOR = "group_norm"
# What one writes, and the steps, with what each box of the flow says.
SOURCES = {
    "spec.py": "the declaration: names, shapes, dtypes, attributes, tolerances",
    "kernel.h": "the kernel, in C++",
    "reference.py": "the expected outputs, in NumPy",
    "cases.py": "models, and their inputs",
}
STEPS = {
    "codegen": "write bindings, fake kernel, ONNX schema, lowering",
    "compile": "build a library for torch and one for ONNX Runtime",
    "data": "write inputs and expected outputs",
    "cases": "check that wrong kernels would fail",
    "register": "test the operator in torch",
    "export": "write models, with both exporters, at each opset",
    "verify": "run the models in ONNX Runtime, compare the outputs",
    "report": "print the result, write the page",
}
# Rows of the table in docs/architecture.md, and how the diagram names them.
CHANGES = {
    "comment in a kernel": "a comment in the kernel",
    "kernel": "the kernel",
    "lowering": "a lowering",
    "reference": "the reference",
    "another case in a model": "a case",
    "a new model, or new shapes of a model's first case": "a model",
    "tolerance of `custom`": "a tolerance",
    "torch's version": "the version of torch",
    "README": "a README",
}
CELL, ROW = 26, 26  # width and height of a field
_MARKS = """
  .on { fill: #1a7f37 } .part { fill: #57ab5a } .off { fill: #eaeef2 } .number { fill: #ffffff; text-anchor: middle }
  @media (prefers-color-scheme: dark) { .on { fill: #3fb950 } .part { fill: #238636 } .off { fill: #21262d } }
"""


def flow(steps: Sequence[Step]) -> str:
    """Return the steps of one operator as boxes, with an arrow from each file or step to the steps that read it."""
    mine = [s for s in steps if s.group in STEPS and (s.operator == OPERATOR or s.group == "report")]
    writer = {path: s.group for s in mine for path in s.writes}
    writer |= {s.verdict: s.group for s in mine if s.verdict}
    arrows: set[Arrow] = set()
    for step in mine:
        arrows |= {(writer[path], step.group) for path in step.reads if path in writer}
        arrows |= {(Path(path).name, step.group) for path in (*step.reads, *step.declared) if _is_source(path)}
    arrows = {(a, b) for a, b in arrows if a != b}
    boxes = [Box(name=name, text=text) for name, text in (SOURCES | STEPS).items()]
    title = "The files that you write, and the steps that doit runs"
    return render(title, boxes, reduced(arrows), made_by=COMMAND)


def _is_source(path: str) -> bool:
    return Path(path).name in SOURCES and Path(path).parts[-3:-1] in (("ops", OPERATOR), ("native", OPERATOR))


def matrix() -> str:
    """Return the opsets by torch and exporter, each with the number of ONNX Runtimes that read its models."""
    opsets = range(min(r.legacy.start for r in TORCH.values()), max(r.dynamo.stop for r in TORCH.values()))
    rows = []
    for torch, row in TORCH.items():
        for exporter in TORCH_EXPORTERS:
            if not getattr(row, exporter):
                continue
            counts = []
            for opset in opsets:
                cells = [Cell(torch=torch, exporter=exporter, opset=opset, ort=ort) for ort in ORT]
                written = why_unsupported(exporter, opset, torch) is None
                counts.append(sum(why_unreadable(cell) is None for cell in cells) if written else 0)
            shown = [(str(count), "on" if count == len(ORT) else "part") if count else ("", "off") for count in counts]
            rows.append((f"torch {torch}, {exporter}", shown))
    return _grid(
        "The matrix: the opsets that each exporter writes",
        f"The number is how many of ONNX Runtime {', '.join(ORT)} read the exported model.",
        [f"{opset}" for opset in opsets],
        rows,
    )


def reruns(page: str) -> str:
    """Return which steps run after which change; `page` is the text of docs/architecture.md."""
    table = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE))
    names = list(STEPS)
    rows = []
    for change, shown in CHANGES.items():
        if change not in table:
            raise ValueError(f"docs/architecture.md has no row {change!r} in the table of changes")
        rows.append((shown, [("", "on" if runs else "off") for runs in _runs(table[change], names)]))
    title = "After a change, doit runs only the steps that it affects"
    return _grid(title, "Green: the step runs again. Gray: it is up to date.", names, rows, width=68)


def _runs(text: str, names: Sequence[str]) -> Iterator[bool]:
    """Yield for each step whether it runs: those that a row names, and for "what follows", all after the last."""
    named = [name in re.findall(r"[a-z]+", text.partition(";")[0]) for name in names]
    last = max((n for n, runs in enumerate(named) if runs), default=len(names))
    follows = "what follows" in text
    yield from (runs or (follows and n > last) for n, runs in enumerate(named))


def _grid(
    title: str,
    text: str,
    columns: Sequence[str],
    rows: Iterable[tuple[str, Sequence[tuple[str, str]]]],
    *,
    width: int = CELL,
) -> str:
    """Return a table of fields; each has a text and a class of _MARKS."""
    rows, left, top = list(rows), MARGIN + 150, TOP + 34
    body = [f'<text class="text" x="{MARGIN}" y="{TOP - 4}">{escape(text)}</text>']
    for n, column in enumerate(columns):
        middle = left + (n + 0.5) * (width + 3)
        body.append(f'<text class="text" x="{middle:g}" y="{top - 10}" text-anchor="middle">{escape(column)}</text>')
    for m, (name, fields) in enumerate(rows):
        y = top + m * (ROW + 3)
        body.append(f'<text class="text" x="{MARGIN}" y="{y + 17}">{escape(name)}</text>')
        for n, (number, kind) in enumerate(fields):
            x = left + n * (width + 3)
            body.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{ROW}" rx="3"/>')
            if number:
                body.append(f'<text class="text number" x="{x + width / 2:g}" y="{y + 17}">{number}</text>')
    size = left + len(columns) * (width + 3) + MARGIN, top + len(rows) * (ROW + 3) + MARGIN - 8
    return "\n".join([*head(title, *size, made_by=COMMAND, style=STYLE + _MARKS), *body, "</svg>\n"])


def pictures(steps: Sequence[Step], page: str) -> Mapping[str, str]:
    """Return the text of each picture by its file's name."""
    return {"flow.svg": flow(steps), "matrix.svg": matrix(), "reruns.svg": reruns(page)}


def main() -> int:
    steps = load_or_plan(Paths(ROOT), choice=Choice(opsets="18"), environ=os.environ)
    for name, text in pictures(steps, (ROOT / "docs/architecture.md").read_text()).items():
        path = ROOT / FOLDER / name
        path.parent.mkdir(exist_ok=True)
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)
            print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
