"""Cells of the matrix: one combination of torch, exporter, opset and ONNX Runtime, and which of them are legal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from pipeline.errors import UsageError

Exporter = Literal["legacy", "dynamo", "node"]
TORCH_EXPORTERS: tuple[Exporter, ...] = ("legacy", "dynamo")
# "node" needs no torch: one-node models, for what torch cannot express.
EXPORTERS: tuple[Exporter, ...] = (*TORCH_EXPORTERS, "node")

# Which opsets an exporter of torch 2.13 really writes. Measured: 21 to 23 are only a label in the legacy exporter
# (it warns that 20 is its highest), 24 is refused; below 18 dynamo gives another opset than asked, or ValueError.
LEGAL_OPSETS: Mapping[Exporter, range] = {"legacy": range(7, 21), "dynamo": range(18, 26), "node": range(7, 26)}

_CELL = re.compile(r"(?:torch(\d+\.\d+)-(legacy|dynamo)|(node))-opset(\d+)-ort(\d+\.\d+)")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell. Prints as ``torch2.13-dynamo-opset18-ort1.31``, or ``node-opset18-ort1.31``, and parses from it.

    `torch` and `ort` are "major.minor"; the exporter "node" has no torch.
    """

    torch: str | None
    exporter: Exporter
    opset: int
    ort: str

    def __str__(self) -> str:
        return f"{self.export_name}-ort{self.ort}"

    @property
    def export_name(self) -> str:
        """The factors that an exported model depends on: all but ONNX Runtime."""
        return f"{self.maker}-opset{self.opset}"

    @property
    def maker(self) -> str:
        """What writes the model: ``torch2.13-dynamo``, or ``node``."""
        return self.exporter if self.torch is None else f"torch{self.torch}-{self.exporter}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Return the cell that prints as `text`; raise UsageError for anything else."""
        if not (found := _CELL.fullmatch(text)):
            raise UsageError(f"{text!r} is no cell; a cell is written like 'torch2.13-dynamo-opset18-ort1.31'")
        torch, exporter, node, opset, ort = found.groups()
        return cls(torch=torch, exporter=cast(Exporter, exporter or node), opset=int(opset), ort=ort)


def illegal(exporter: Exporter, opset: int) -> str | None:
    """Return why `exporter` cannot write `opset`, or None where it can."""
    legal = LEGAL_OPSETS[exporter]
    if opset in legal:
        return None
    return f"the {exporter} exporter writes opsets {legal.start} to {legal.stop - 1}, not {opset}"


def cells(opsets: Mapping[Exporter, Sequence[int]], *, torch: str, ort: str) -> Iterator[Cell]:
    """Yield the cells of one torch and one ONNX Runtime, legacy first, by opset."""
    for exporter in EXPORTERS:
        for opset in sorted(opsets[exporter]):
            yield Cell(torch=torch if exporter in TORCH_EXPORTERS else None, exporter=exporter, opset=opset, ort=ort)


def choose_opsets(asked: str, default: Mapping[Exporter, Sequence[int]]) -> dict[Exporter, tuple[int, ...]]:
    """Return the opsets per exporter for the doit variable ``opsets``.

    `asked` is "default", "all" (every legal one) or a list like "18,20": each opset with every exporter that can
    write it. Raises UsageError for anything else, and for an opset that no exporter writes.
    """
    if asked == "default":
        return {e: tuple(default[e]) for e in EXPORTERS}
    if asked == "all":
        return {e: tuple(LEGAL_OPSETS[e]) for e in EXPORTERS}
    if not re.fullmatch(r"\d+(,\d+)*", asked):
        raise UsageError(f"opsets={asked!r}: write 'default', 'all' or opsets like '18,20'")
    wanted = sorted({int(o) for o in asked.split(",")})
    for opset in wanted:
        reasons = [illegal(e, opset) for e in EXPORTERS]
        if all(reasons):
            raise UsageError(f"opsets={asked!r}: " + "; ".join(r for r in reasons if r))
    return {e: tuple(o for o in wanted if not illegal(e, o)) for e in EXPORTERS}
