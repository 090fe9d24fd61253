"""A cell of the matrix (torch, exporter, opset, ONNX Runtime), its legality, and the cells that a command chooses.

The tables TORCH and ORT say which cells are legal; `doit probe` measures their rows. A version between or above their
rows has the nearest older row, or that of its project: `opmatrix.project.measured`. `why_unsupported`, `why_unreadable`
and `why_no_exporter` return the reason why a combination is not legal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, cast

from opmatrix.basics.errors import UsageError, did_you_mean
from opmatrix.basics.version import minor, numbers

Exporter = Literal["legacy", "dynamo", "node"]
_Row = TypeVar("_Row")
TORCH_EXPORTERS: tuple[Exporter, ...] = ("legacy", "dynamo")
# "node" needs no torch: it writes one-node models, for what torch cannot express.
EXPORTERS: tuple[Exporter, ...] = (*TORCH_EXPORTERS, "node")


@dataclass(frozen=True, kw_only=True)
class Torch:
    """The opsets that each exporter of one torch writes.

    `no_dynamo` is the reason for an empty `dynamo`. With an opset of `label` the legacy exporter writes that opset
    import, but the nodes of its highest opset. `python` is the newest CPython that has wheels of this torch.
    """

    legacy: range
    dynamo: range = range(0)
    no_dynamo: str = ""
    label: range = range(0)
    python: str = "3.14"


@dataclass(frozen=True, kw_only=True)
class Ort:
    """The newest IR version and opset that one ONNX Runtime reads; `python` is as in Torch."""

    ir: int
    opset: int
    python: str = "3.14"


_NO_DYNAMO = "has no exporter that takes a custom_translation_table; torch 2.6 is the first"
TORCH: Mapping[str, Torch] = {
    "1.13": Torch(legacy=range(7, 18), no_dynamo=_NO_DYNAMO, python="3.11"),
    "2.0": Torch(legacy=range(7, 19), no_dynamo=_NO_DYNAMO, python="3.11"),
    "2.6": Torch(legacy=range(7, 21), dynamo=range(18, 26), python="3.13"),
    "2.9": Torch(legacy=range(7, 21), dynamo=range(18, 26), label=range(21, 24)),
    "2.13": Torch(legacy=range(7, 21), dynamo=range(18, 26), label=range(21, 24)),
    "2.15": Torch(legacy=range(7, 21), dynamo=range(18, 26), label=range(21, 24)),
}
ORT: Mapping[str, Ort] = {
    "1.16": Ort(ir=9, opset=19, python="3.11"),
    "1.18": Ort(ir=10, opset=21, python="3.12"),
    "1.21": Ort(ir=10, opset=22, python="3.13"),
    "1.24": Ort(ir=13, opset=25),
    "1.31": Ort(ir=13, opset=26),
    "1.32": Ort(ir=14, opset=28),
}
NODE_OPSETS = range(7, 26)
# The newest versions of what has no rows, with which all rows are measured; requirements/update.py raises two of them.
NEWEST = {"onnx": "1.23", "onnxscript": "0.7", "python": "3.13"}
# A value of the doit variables torch and ort: all versions whose environment exists, the main one included.
MADE = "made"

_TITLES = {"torch": "torch", "ort": "ONNX Runtime"}
# The dynamo exporter writes this IR version at every opset, the others the first IR version that has the opset.
_DYNAMO_IR = 10
_FIRST_IR = ((21, 10), (19, 9), (15, 8), (12, 7), (11, 6), (10, 5), (9, 4), (0, 3))


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of both tables, oldest first. `guessed`: versions, as ``ort1.33``, with the nearest older row."""

    torch: Mapping[str, Torch]
    ort: Mapping[str, Ort]
    guessed: frozenset[str] = frozenset()


_rows = Rows(torch=TORCH, ort=ORT)  # of this process: see `use_rows`


def rows() -> Rows:
    """Return the rows that this process uses."""
    return _rows


def use_rows(used: Rows) -> None:
    """Let this process, which works on one project, use the rows of that project instead of TORCH and ORT."""
    global _rows
    _rows = used


def unshipped_rows(torch: str | None, ort: str | None) -> list[str]:
    """Return the rows of two versions that are not in TORCH and ORT: results depend on them, as on this module.

    Without `python`, which chooses cells and changes no result.
    """
    found = (_rows.torch.get(torch or ""), TORCH.get(torch or "")), (_rows.ort.get(ort or ""), ORT.get(ort or ""))
    return [str(replace(used, python="")) for used, shipped in found if used and used != shipped]


def environment_names() -> list[str]:
    """Return ``torch2.9`` and ``ort1.18`` for each row."""
    return [*(f"torch{version}" for version in _rows.torch), *(f"ort{version}" for version in _rows.ort)]


def nearest_older(factor: str, table: Mapping[str, _Row], version: str) -> _Row:
    """Return the row of a version or, where it has none, the nearest older one. Raises UsageError where all are newer.

    The limits of a version have never been below those of an older one (torch 1.13 to 2.15, ONNX Runtime 1.16 to 1.32).
    """
    if version in table:
        return table[version]
    try:
        older = [known for known in table if numbers(known) < numbers(minor(version))]
    except ValueError:
        older = []
    if not older:
        allowed = f"allowed: {next(iter(table))} and newer"
        raise UsageError(f"{_TITLES[factor]} {version} is too old; {allowed}. To see what to install: opmatrix doctor")
    return table[older[-1]]


_CELL = re.compile(r"(?:torch(\d+\.\d+)-(legacy|dynamo)|(node))-opset(\d+)-ort(\d+\.\d+)")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell. It prints as ``torch2.13-dynamo-opset18-ort1.31`` or ``node-opset18-ort1.31``; `parse` reads that.

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
        """The axes that an exported model depends on: all but ONNX Runtime."""
        return f"{self.exporter_name}-opset{self.opset}"

    @property
    def exporter_name(self) -> str:
        """The exporter with its torch: ``torch2.13-dynamo``, or ``node``."""
        return self.exporter if self.torch is None else f"torch{self.torch}-{self.exporter}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Return the cell that prints as `text`. Raises UsageError."""
        if not (found := _CELL.fullmatch(text)):
            raise UsageError(f"{text!r} is not a cell; a cell is written like 'torch2.13-dynamo-opset18-ort1.31'")
        torch, exporter, node, opset, ort = found.groups()
        return cls(torch=torch, exporter=cast(Exporter, exporter or node), opset=int(opset), ort=ort)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The doit variables that choose cells, as given. "default" is the version of the main environment."""

    torch: str = "default"
    ort: str = "default"
    opsets: str = "default"

    def normalized(self, *, torch: str, ort: str) -> Choice:
        """Return an equal choice in which the main environment's versions, `torch` and `ort`, are "default"."""
        known = {"torch": torch, "ort": ort}
        return Choice(**{n: "default" if value == known.get(n) else value for n, value in vars(self).items()})

    def __str__(self) -> str:
        """Return the arguments for `doit`: ``torch=2.9 opsets=18``, or nothing."""
        return " ".join(f"{name}={value}" for name, value in vars(self).items() if value != "default")


def opsets_of(exporter: Exporter, torch: str | None) -> range:
    """Return the opsets that `exporter` of this torch writes. Raises UsageError for a torch older than all rows."""
    if exporter == "node":
        return NODE_OPSETS
    opsets: range = getattr(nearest_older("torch", _rows.torch, torch or ""), exporter)
    return opsets


def why_unsupported(exporter: Exporter, opset: int, torch: str | None = None) -> str | None:
    """Return why `exporter` of this torch cannot write `opset`, or None if it can."""
    legal = opsets_of(exporter, torch)
    if opset in legal:
        return None
    if exporter == "node":
        return f"the node exporter writes opsets {_span(legal)}, not {opset}"
    row = nearest_older("torch", _rows.torch, torch or "")
    if not legal:
        return f"torch {torch} {row.no_dynamo}"
    reason = f"the {exporter} exporter of torch {torch} writes opsets {_span(legal)}, not {opset}"
    if exporter == "legacy" and opset in row.label:
        reason += f": the model would import opset {opset}, with the nodes of opset {legal.stop - 1}"
    return reason


def why_unreadable(cell: Cell) -> str | None:
    """Return why a cell's ONNX Runtime rejects its models, or None. Raises UsageError for one older than all rows."""
    row = nearest_older("ort", _rows.ort, cell.ort)
    if cell.opset > row.opset:
        return f"ONNX Runtime {cell.ort} reads opsets up to {row.opset}, not {cell.opset}"
    if (found := ir_version(cell.exporter, cell.opset)) > row.ir:
        return (
            f"ONNX Runtime {cell.ort} reads IR versions up to {row.ir}, and the {cell.exporter} exporter writes {found}"
        )
    return None


def is_measured(ort: str) -> bool:
    """Return whether the limits of an ONNX Runtime are measured; otherwise it may read more than its row says."""
    return ort in _rows.ort and f"ort{ort}" not in _rows.guessed


def ir_version(exporter: Exporter, opset: int) -> int:
    """Return the IR version of the models that `exporter` writes at `opset`."""
    if exporter == "dynamo":
        return _DYNAMO_IR
    return next(version for first, version in _FIRST_IR if opset >= first)


def choose_cells(
    choice: Choice,
    *,
    default: Mapping[Exporter, Sequence[int]],
    torch: str,
    ort: str,
    torches: Mapping[str, bool],
    orts: Mapping[str, bool],
) -> Iterator[Cell]:
    """Yield the chosen cells, ordered by torch, ONNX Runtime, exporter (legacy first) and opset.

    `default` are the opsets of the choice "default"; `torch` and `ort` are the main environment's versions. `torches`
    and `orts` map every version that has pins to whether its environment exists. Raises UsageError for an unknown
    version, and for an opset that no exporter writes.
    """
    chosen_torches = _versions("torch", choice.torch, torch, torches)
    chosen_orts = _versions("ort", choice.ort, ort, orts)
    opsets = {version: choose_opsets(choice.opsets, default, version) for version in chosen_torches}
    if choice.opsets not in ("default", "all"):
        for opset in _parse_opsets(choice.opsets):
            if reason := why_no_exporter(opset, opsets):
                raise UsageError(f"opsets={choice.opsets!r}: {reason}")
    for version in chosen_torches:
        for runtime in chosen_orts:
            yield from _cells(opsets[version], TORCH_EXPORTERS, torch=version, ort=runtime)
    for runtime in chosen_orts:
        yield from _cells(opsets[chosen_torches[0]], ("node",), torch=None, ort=runtime)


def all_cells() -> Iterator[Cell]:
    """Yield every cell that `rows` are of, with or without an environment."""
    for ort in _rows.ort:
        for torch in _rows.torch:
            yield from _cells({e: opsets_of(e, torch) for e in TORCH_EXPORTERS}, TORCH_EXPORTERS, torch=torch, ort=ort)
        yield from _cells({"node": NODE_OPSETS}, ("node",), torch=None, ort=ort)


def choose_opsets(asked: str, default: Mapping[Exporter, Sequence[int]], torch: str) -> dict[Exporter, tuple[int, ...]]:
    """Return the opsets per exporter of one torch for the doit variable ``opsets``.

    `asked` is "default", "all" (every legal opset) or a list like "18,20", which goes to every exporter that writes the
    opset. Raises UsageError for anything else.
    """
    if asked == "all":
        return {e: tuple(opsets_of(e, torch)) for e in EXPORTERS}
    if asked != "default":
        default = dict.fromkeys(EXPORTERS, _parse_opsets(asked))
    return {e: tuple(o for o in default[e] if not why_unsupported(e, o, torch)) for e in EXPORTERS}


def _parse_opsets(asked: str) -> list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", asked):
        raise UsageError(f"opsets={asked!r}: write 'default', 'all' or opsets like '18,20'")
    return sorted({int(o) for o in asked.split(",")})


def why_no_exporter(opset: int, torches: Iterable[str]) -> str | None:
    """Return why no exporter of these torches writes an opset, or None if one does."""
    reasons = [why_unsupported(e, opset, torch) for torch in torches for e in TORCH_EXPORTERS]
    return None if None in reasons else "; ".join(dict.fromkeys(r for r in reasons if r))


def _cells(
    opsets: Mapping[Exporter, Sequence[int]], exporters: Iterable[Exporter], *, torch: str | None, ort: str
) -> Iterator[Cell]:
    for exporter in exporters:
        for opset in sorted(opsets[exporter]):
            yield Cell(torch=torch, exporter=exporter, opset=opset, ort=ort)


def _versions(factor: str, asked: str, default: str, pinned: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the versions of one axis that are asked for, oldest first."""
    if asked == "default":
        return (default,)
    if asked == "all":
        return tuple(pinned)
    if asked == MADE:
        return tuple(version for version, is_made in pinned.items() if is_made)
    wanted = asked.split(",")
    for version in wanted:
        if version not in pinned:
            if version in getattr(_rows, factor):  # legal, such as one older than a project's own
                files = f"requirements/{factor}{version}.txt" + f" and torch{version}-cpu.txt" * (factor == "torch")
                raise UsageError(f"{factor}={asked!r}: nothing pins an environment for {version}; allowed: "
                                 f"{', '.join(pinned)}. Write {files}, or install it where doit runs")  # fmt: skip
            near = did_you_mean(version, pinned)
            raise UsageError(f"{factor}={asked!r}: unknown version {version!r}{near}; allowed: {', '.join(pinned)}, "
                             "several of them with commas, 'default', 'all' or 'made'")  # fmt: skip
    return tuple(version for version in pinned if version in wanted)


def _span(opsets: range) -> str:
    return f"{opsets.start} to {opsets.stop - 1}"
