"""Cells of the matrix: one combination of torch, exporter, opset and ONNX Runtime, and which of them are legal.

What is legal is data, TORCH and ORT below. Nobody has to believe it: `doit probe` measures it anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

from opmatrix.errors import UsageError, did_you_mean

Exporter = Literal["legacy", "dynamo", "node"]
_Row = TypeVar("_Row")
TORCH_EXPORTERS: tuple[Exporter, ...] = ("legacy", "dynamo")
# "node" needs no torch: one-node models, for what torch cannot express.
EXPORTERS: tuple[Exporter, ...] = (*TORCH_EXPORTERS, "node")


@dataclass(frozen=True, kw_only=True)
class Torch:
    """The opsets that each exporter of one torch really writes; `no_dynamo` says why it has none.

    `label` are those that its legacy exporter only writes down, while the nodes are those of its highest opset.
    `python` is the newest CPython that it has wheels for.
    """

    legacy: range
    dynamo: range = range(0)
    no_dynamo: str = ""
    label: range = range(0)
    python: str = "3.13"


@dataclass(frozen=True, kw_only=True)
class Ort:
    """The newest IR version and opset that one ONNX Runtime reads; `python` as of Torch."""

    ir: int
    opset: int
    python: str = "3.13"


_NO_DYNAMO = "has no exporter that takes a custom_translation_table; torch 2.6 is the first"
TORCH: Mapping[str, Torch] = {
    "1.13": Torch(legacy=range(7, 18), no_dynamo=_NO_DYNAMO, python="3.11"),
    "2.0": Torch(legacy=range(7, 19), no_dynamo=_NO_DYNAMO, python="3.11"),
    "2.6": Torch(legacy=range(7, 21), dynamo=range(18, 26)),
    "2.9": Torch(legacy=range(7, 21), dynamo=range(18, 26), label=range(21, 24)),
    "2.13": Torch(legacy=range(7, 21), dynamo=range(18, 26), label=range(21, 24)),
    "2.15": Torch(legacy=range(7, 21), dynamo=range(18, 26), label=range(21, 24)),
}
ORT: Mapping[str, Ort] = {
    "1.16": Ort(ir=9, opset=19, python="3.11"),
    "1.18": Ort(ir=10, opset=21, python="3.12"),
    "1.21": Ort(ir=10, opset=22),
    "1.24": Ort(ir=13, opset=25),
    "1.31": Ort(ir=13, opset=26),
}
NODE = range(7, 26)
# As the value of a variable: the versions whose environment is there, the main one among them.
MADE = "made"

# Models of the dynamo exporter have this IR version at every opset; those of the others the first that has the opset.
_DYNAMO_IR = 10
_FIRST_IR = ((21, 10), (19, 9), (15, 8), (12, 7), (11, 6), (10, 5), (9, 4), (0, 3))

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


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The doit variables that choose cells, as they were given. "default" is what the main environment has."""

    torch: str = "default"
    ort: str = "default"
    opsets: str = "default"

    def plain(self, *, torch: str, ort: str) -> Choice:
        """Return the same in one form alone, for an environment of these versions: what it has is the default."""
        known = {"torch": torch, "ort": ort}
        return Choice(**{n: "default" if value == known.get(n) else value for n, value in vars(self).items()})

    def __str__(self) -> str:
        """Return what is to be written after `doit`: ``torch=2.9 opsets=18``, or nothing."""
        return " ".join(f"{name}={value}" for name, value in vars(self).items() if value != "default")


def opsets_of(exporter: Exporter, torch: str | None) -> range:
    """Return the opsets that `exporter` of this torch writes. Raises UsageError for a torch that has no row."""
    if exporter == "node":
        return NODE
    found: range = getattr(_row("torch", TORCH, torch or ""), exporter)
    return found


def why_unsupported(exporter: Exporter, opset: int, torch: str | None = None) -> str | None:
    """Return why `exporter` of this torch cannot write `opset`, or None where it can."""
    legal = opsets_of(exporter, torch)
    if opset in legal:
        return None
    if exporter == "node":
        return f"the node exporter writes opsets {_span(legal)}, not {opset}"
    row = TORCH[torch or ""]
    if not legal:
        return f"torch {torch} {row.no_dynamo}"
    reason = f"the {exporter} exporter of torch {torch} writes opsets {_span(legal)}, not {opset}"
    if exporter == "legacy" and opset in row.label:
        reason += f": that would be a mere label on the nodes of opset {legal.stop - 1}"
    return reason


def why_unreadable(cell: Cell) -> str | None:
    """Return why the ONNX Runtime of a cell refuses its models, whatever is in them, or None where it reads them.

    Raises UsageError for an ONNX Runtime that has no row.
    """
    row = _row("ort", ORT, cell.ort)
    if cell.opset > row.opset:
        return f"ONNX Runtime {cell.ort} reads opsets up to {row.opset}, not {cell.opset}"
    if (found := ir(cell.exporter, cell.opset)) > row.ir:
        return (
            f"ONNX Runtime {cell.ort} reads IR versions up to {row.ir}, and the {cell.exporter} exporter writes {found}"
        )
    return None


def ir(exporter: Exporter, opset: int) -> int:
    """Return the IR version of a model."""
    if exporter == "dynamo":
        return _DYNAMO_IR
    return next(version for first, version in _FIRST_IR if opset >= first)


def cells(
    choice: Choice,
    *,
    default: Mapping[Exporter, Sequence[int]],
    torch: str,
    ort: str,
    torches: Mapping[str, bool],
    orts: Mapping[str, bool],
) -> Iterator[Cell]:
    """Yield the cells that are chosen: by torch and ONNX Runtime, legacy first, by opset.

    `default` are the opsets where none are chosen; `torch` and `ort` what the main environment has; `torches` and
    `orts` all that there is an environment for, and whether it is made. Raises UsageError for what is unknown, and for
    what no torch writes.
    """
    chosen = _versions("torch", choice.torch, torch, torches), _versions("ort", choice.ort, ort, orts)
    opsets = {version: choose_opsets(choice.opsets, default, version) for version in chosen[0]}
    _refuse_unwritten(choice.opsets, opsets)
    for version in chosen[0]:
        for runtime in chosen[1]:
            yield from _cells(opsets[version], TORCH_EXPORTERS, torch=version, ort=runtime)
    for runtime in chosen[1]:
        yield from _cells(opsets[chosen[0][0]], ("node",), torch=None, ort=runtime)


def every_cell() -> Iterator[Cell]:
    """Yield every cell that TORCH and ORT have a row for, whether or not there is an environment for it."""
    for ort in ORT:
        for torch in TORCH:
            yield from _cells({e: opsets_of(e, torch) for e in TORCH_EXPORTERS}, TORCH_EXPORTERS, torch=torch, ort=ort)
        yield from _cells({"node": NODE}, ("node",), torch=None, ort=ort)


def choose_opsets(asked: str, default: Mapping[Exporter, Sequence[int]], torch: str) -> dict[Exporter, tuple[int, ...]]:
    """Return the opsets per exporter of one torch for the doit variable ``opsets``.

    `asked` is "default", "all" (every legal one) or a list like "18,20": each opset with every exporter that can
    write it. Raises UsageError for anything else.
    """
    if asked == "all":
        return {e: tuple(opsets_of(e, torch)) for e in EXPORTERS}
    if asked == "default":
        return {e: tuple(o for o in default[e] if not why_unsupported(e, o, torch)) for e in EXPORTERS}
    if not re.fullmatch(r"\d+(,\d+)*", asked):
        raise UsageError(f"opsets={asked!r}: write 'default', 'all' or opsets like '18,20'")
    wanted = sorted({int(o) for o in asked.split(",")})
    return {e: tuple(o for o in wanted if not why_unsupported(e, o, torch)) for e in EXPORTERS}


def why_no_exporter(opset: int, torches: Iterable[str]) -> str | None:
    """Return why no exporter of these torches writes an opset, or None where one does."""
    reasons = [why_unsupported(e, opset, torch) for torch in torches for e in TORCH_EXPORTERS]
    return None if None in reasons else "; ".join(dict.fromkeys(r for r in reasons if r))


def _refuse_unwritten(asked: str, torches: Iterable[str]) -> None:
    """Raise UsageError for an opset that was asked for by its number, and that no exporter writes."""
    if asked not in ("default", "all"):
        for opset in sorted({int(o) for o in asked.split(",")}):
            if reason := why_no_exporter(opset, torches):
                raise UsageError(f"opsets={asked!r}: {reason}")


def _cells(
    opsets: Mapping[Exporter, Sequence[int]], exporters: Iterable[Exporter], *, torch: str | None, ort: str
) -> Iterator[Cell]:
    for exporter in exporters:
        for opset in sorted(opsets[exporter]):
            yield Cell(torch=torch, exporter=exporter, opset=opset, ort=ort)


def _versions(factor: str, asked: str, default: str, known: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the versions of one factor that are asked for, oldest first."""
    if asked == "default":
        return (default,)
    if asked == "all":
        return tuple(known)
    if asked == MADE:
        return tuple(version for version, is_made in known.items() if is_made)
    wanted = asked.split(",")
    for version in wanted:
        if version not in known:
            if version in {"torch": TORCH, "ort": ORT}.get(factor, {}):  # such as an older one than a project's own
                files = f"requirements/{factor}{version}.txt" + f" and torch{version}-cpu.txt" * (factor == "torch")
                raise UsageError(f"{factor}={asked!r}: nothing pins an environment for {version}; allowed: "
                                 f"{', '.join(known)}. Write {files}, or install it where doit runs")  # fmt: skip
            near = did_you_mean(version, known)
            raise UsageError(f"{factor}={asked!r}: unknown version {version!r}{near}; allowed: {', '.join(known)}, "
                             "several of them with commas, 'default', 'all' or 'made'")  # fmt: skip
    return tuple(version for version in known if version in wanted)


def _row(factor: str, table: Mapping[str, _Row], version: str) -> _Row:
    if version in table:
        return table[version]
    raise UsageError(f"{factor} {version}: it has no row in pipeline/opmatrix/matrix/cells.py, which has "
                     f"{', '.join(table)}. Measure it: `python -m opmatrix probe {factor}` prints the row "
                     "to add")  # fmt: skip


def _span(opsets: range) -> str:
    return f"{opsets.start} to {opsets.stop - 1}"
