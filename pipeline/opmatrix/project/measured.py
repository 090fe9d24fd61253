"""The versions that a project has measured itself, ``[tool.opmatrix.matrix]`` of its pyproject.toml, and the line about
those that nobody has measured.

    [tool.opmatrix.matrix]
    torch."2.16" = { legacy = [7, 20], dynamo = [18, 25], label = [21, 23] }
    ort."1.33" = { ir = 14, opset = 27 }
    onnx = "1.24"

`opmatrix probe` writes the table. The fields of a row are those of `opmatrix.project.cells.Torch` and `Ort`; a list has
the first and the last opset. onnx, onnxscript and python have no rows: the newest version is written.

The row that `doit probe` measured of one torch or ONNX Runtime, and how it differs from opmatrix.project.cells.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from opmatrix.basics.errors import UsageError
from opmatrix.basics.files import write_text
from opmatrix.basics.version import minor, numbers, older
from opmatrix.project import cells
from opmatrix.project.cells import (
    NEWEST,
    ORT,
    TORCH,
    TORCH_EXPORTERS,
    Exporter,
    Ort,
    Rows,
    Torch,
    ir_version,
    nearest_older,
)
from opmatrix.project.paths import Paths, shipped
from opmatrix.project.settings import Versions, pinned_versions, read_settings, setting

TABLE = "[tool.opmatrix.matrix]"
MEASURE = "opmatrix probe"
_OPSETS = ("legacy", "dynamo", "label")
_PACKAGES = {"torch": "torch", "ort": "onnxruntime"}
_NO_DYNAMO = "wrote none of the opsets that `opmatrix probe` tried"

_KEY = re.compile(r"""^[^#\n]*\bmatrix["']?\s*[].=]""", re.MULTILINE)  # compiled before a server forks its steps


def _are_rows(table: object) -> bool:
    return isinstance(table, dict) and all(map(_is_version, table))


def _is_version(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d+\.\d+", value) is not None


def _torch_rows(table: Mapping[str, object]) -> Mapping[str, Torch]:
    return {version: _torch(f'torch."{version}"', row) for version, row in table.items()}


def _ort_rows(table: Mapping[str, object]) -> Mapping[str, Ort]:
    return {version: _ort(f'ort."{version}"', row) for version, row in table.items()}


_ROWS = f'rows of minor versions, such as ort."1.33". `{MEASURE}` writes them'
_VERSION = f'a minor version such as "1.24". `{MEASURE}` writes it'


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The rows that a project has measured, and the newest version of what has no rows, "" for none."""

    TABLE: ClassVar[str] = "matrix"
    torch: Mapping[str, Torch] = setting(_are_rows, _ROWS, parse=_torch_rows, default_factory=dict)
    """rows of versions that opmatrix has not measured ([the matrix](../matrix.md#what-is-legal))"""
    ort: Mapping[str, Ort] = setting(_are_rows, _ROWS, parse=_ort_rows, default_factory=dict)
    """the same of ONNX Runtime"""
    onnx: str = setting(_is_version, _VERSION, default="")
    """the newest that `opmatrix probe` has measured here"""
    onnxscript: str = setting(_is_version, _VERSION, default="")
    """as onnx"""
    python: str = setting(_is_version, _VERSION, default="")
    """as onnx"""

    @property
    def newest(self) -> Mapping[str, str]:
        return {name: version for name in NEWEST if (version := getattr(self, name))}


def read(paths: Paths) -> Matrix:
    """Return the table of the project. Raises UsageError for a value that is not allowed."""
    try:
        text = (paths.root / "pyproject.toml").read_text(encoding="utf-8")
    except FileNotFoundError:
        return Matrix()
    # Where `matrix` is no key, it is not read: tomllib costs each command 2 ms.
    named = _KEY.search(text)
    return read_settings(paths, Matrix) if named else Matrix()


def use_rows(paths: Paths, versions: Versions | None = None) -> Matrix:
    """Let this process use the rows of the project: the shipped ones, those that it has measured and, for the installed
    and pinned versions that have none, the nearest older ones. Raises UsageError for a version older than all rows.

    `versions`: None in an environment of the matrix, which lacks a part of the packages.
    """
    matrix = read(paths)
    tables: dict[str, dict[str, Any]] = {"torch": {**TORCH, **matrix.torch}, "ort": {**ORT, **matrix.ort}}
    rows, guessed = dict[str, Any](), set[str]()
    for factor, table in tables.items():
        measured = _sorted(table)
        named = {*pinned_versions(paths, factor), *([_installed(factor, versions)] if versions else [])}
        rows[factor] = _sorted(table | {version: nearest_older(factor, measured, version) for version in named})
        guessed |= {f"{factor}{version}" for version in named - measured.keys()}
    cells.use_rows(Rows(**rows, guessed=frozenset(guessed)))
    return matrix


def unmeasured(matrix: Matrix, versions: Versions) -> str:
    """Return a line about the installed versions that nobody has measured, "" if there are none.

    torch and ONNX Runtime have rows, so it also names a version between two rows. Of onnx, onnxscript and Python only
    the newest measured version is known: it names newer ones alone.
    """
    unknown = []
    for factor, shipped_rows in (("torch", TORCH), ("ort", ORT)):
        known, version = {*shipped_rows, *getattr(matrix, factor)}, _installed(factor, versions)
        if version not in known and (nearest := max((v for v in known if older(v, version)), key=numbers, default="")):
            unknown.append(f"{_PACKAGES[factor]} {version} is used as {nearest}")
    for name in NEWEST:
        version, newest = _installed(name, versions), {**NEWEST, **matrix.newest}[name]
        if older(newest, version):
            unknown.append(f"{name} {version} is used as {newest}")
    return f"not measured: {', '.join(unknown)}. To measure: {MEASURE}" if unknown else ""


def newer(matrix: Matrix, versions: Versions) -> dict[str, str]:
    """Return the lines of the table for what has no rows and is installed in a newer version than was measured."""
    now = {name: _installed(name, versions) for name in NEWEST}
    return {name: f'"{version}"' for name, version in now.items() if older({**NEWEST, **matrix.newest}[name], version)}


def is_checkout(paths: Paths) -> bool:
    """Return whether the project is the checkout of this opmatrix, whose rows are in opmatrix.project.cells."""
    return paths.root / "requirements" == shipped("requirements")


def _installed(name: str, versions: Versions) -> str:
    if name == "python":
        return f"{sys.version_info[0]}.{sys.version_info[1]}"
    return minor(getattr(versions, _PACKAGES.get(name, name)))


def _torch(where: str, row: object) -> Torch:
    given = _fields(where, row, _OPSETS)
    opsets = {}
    for name in (n for n in _OPSETS if n in given):
        match given[name]:
            case [int() as first, int() as last] if 0 < first <= last:
                opsets[name] = range(first, last + 1)
            case other:
                raise _wrong(f"{where}: {name}", other, "the first and the last opset, such as [7, 20]")
    if "legacy" not in opsets:
        raise _wrong(where, row, "a row with legacy = [7, 20]")
    return Torch(**opsets, no_dynamo="" if "dynamo" in opsets else _NO_DYNAMO, python=_python())


def _ort(where: str, row: object) -> Ort:
    given = _fields(where, row, ("ir", "opset"))
    match given:
        case {"ir": int() as ir, "opset": int() as opset} if ir > 0 and opset > 0:
            return Ort(ir=ir, opset=opset, python=_python())
    raise _wrong(where, row, "a row such as { ir = 14, opset = 27 }")


def _fields(where: str, row: object, allowed: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(row, dict) or not {*row} <= {*allowed}:
        raise _wrong(where, row, f"a row with {', '.join(allowed)}")
    return row


def _python() -> str:
    """Return the newest CPython that may have wheels: a version that was measured here runs in this Python."""
    return max((NEWEST["python"], f"{sys.version_info[0]}.{sys.version_info[1]}"), key=numbers)


def _wrong(where: str, value: object, allowed: str) -> UsageError:
    return UsageError(f"pyproject.toml: {TABLE}: {where}: found {value!r}, allowed: {allowed}. `{MEASURE}` writes it")


def _sorted(table: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(table.items(), key=lambda row: numbers(row[0])))


# Writing.


def as_toml(row: Torch | Ort) -> str:
    """Return a row as the table contains it: ``{ ir = 14, opset = 27 }``."""
    if isinstance(row, Ort):
        return f"{{ ir = {row.ir}, opset = {row.opset} }}"
    opsets = [(name, getattr(row, name)) for name in _OPSETS if getattr(row, name)]
    return f"{{ {', '.join(f'{name} = [{found[0]}, {found[-1]}]' for name, found in opsets)} }}"


def write(paths: Paths, lines: Mapping[str, str]) -> None:
    """Write ``KEY = VALUE`` lines, such as ``ort."1.33"`` and its row, into the table; all else stays as it is.

    Raises UsageError, with the lines, where pyproject.toml spells the table in another way than `write` does.
    """
    path = paths.root / "pyproject.toml"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    after = "".join(_with_lines(before.splitlines(keepends=True), lines))
    try:
        kept, new = tomllib.loads(before), tomllib.loads(after)
        table = new["tool"]["opmatrix"].pop("matrix")
        kept.setdefault("tool", {}).setdefault("opmatrix", {}).pop("matrix", None)
        right = kept == new and all(_value(table, key) == tomllib.loads(f"x = {v}")["x"] for key, v in lines.items())
    except (tomllib.TOMLDecodeError, KeyError, TypeError):
        right = False
    if not right:
        shown = "\n".join(f"{key} = {value}" for key, value in lines.items())
        raise UsageError(f"pyproject.toml: {TABLE} is written in a way that {MEASURE} does not edit. Add to it:\n"
                         f"{shown}")  # fmt: skip
    write_text(path, after)


def _with_lines(before: list[str], new: Mapping[str, str]) -> list[str]:
    """Return the lines of pyproject.toml with the new ones in its table, each in place of the one with the same key."""
    heads = [i for i, line in enumerate(before) if line.split("#")[0].strip() == TABLE]
    if not heads:
        lines = [*before, *(["\n"] if before and before[-1].endswith("\n") else ["\n\n"] if before else [])]
        return [*lines, f"# What `{MEASURE}` has measured here.\n{TABLE}\n", *(f"{k} = {v}\n" for k, v in new.items())]
    first = end = heads[0] + 1
    while end < len(before) and not before[end].lstrip().startswith("["):
        end += 1
    table = {line.partition("=")[0].strip(): line for line in before[first:end] if "=" in line.split("#")[0]}
    table |= {key: f"{key} = {value}\n" for key, value in new.items()}
    rest = ["\n", *before[end:]] if end < len(before) else []
    kept = [line for line in before[first:end] if line.lstrip().startswith("#")]
    return [*before[:first], *kept, *(line.rstrip("\n") + "\n" for line in table.values()), *rest]


def _value(table: Mapping[str, Any], key: str) -> object:
    factor, _, version = key.partition(".")
    return table[factor][version.strip('"')] if version else table[factor]


@dataclass(frozen=True, kw_only=True)
class Export:
    """One attempt to export a tiny model. `wrong` is why the result is not a model of `opset`, `label` as in Torch."""

    exporter: Exporter
    opset: int
    ir: int = 0
    label: bool = False
    wrong: str = ""

    @property
    def runs(self) -> bool:
        return not self.wrong and not self.label


def torch_row(exports: Iterable[Export]) -> Torch:
    """Return the measured row. Opsets with a gap are no range: then it has the longest part without one."""
    tried = list(exports)
    legacy, dynamo = (
        _range(one.opset for one in tried if one.exporter == exporter and one.runs) for exporter in TORCH_EXPORTERS
    )
    reason = "" if dynamo else "wrote none of the opsets that were tried"
    return Torch(legacy=legacy, dynamo=dynamo, no_dynamo=reason, label=_range(one.opset for one in tried if one.label))


def source(version: str, row: Torch | Ort) -> str:
    """Return a row as opmatrix.project.cells contains it: ``"1.33": Ort(ir=14, opset=27)``."""
    if isinstance(row, Ort):
        return f'"{version}": Ort(ir={row.ir}, opset={row.opset})'
    parts = [f"{name}={opsets!r}" for name in ("legacy", "dynamo", "label") if (opsets := getattr(row, name))]
    return f'"{version}": Torch({", ".join([*parts, *(["no_dynamo=..."] if row.no_dynamo else [])])})'


def torch_differences(version: str, exports: Sequence[Export], row: Torch) -> list[str]:
    """Return how the measured exports differ from a row, with the measured row last."""
    declared: Mapping[str, Iterable[int]] = {"legacy": row.legacy, "dynamo": row.dynamo}
    differences = []
    for one in exports:
        name = f"torch {version}, {one.exporter} exporter, opset {one.opset}"
        legal = one.opset in declared[one.exporter]
        if legal and not one.runs:
            differences.append(f"{name}: declared legal, and {one.wrong or 'its nodes are of an older opset'}")
        elif one.runs and not legal:
            differences.append(f"{name}: declared illegal, and it runs")
        elif one.exporter == "legacy" and one.label != (one.opset in row.label):
            differences.append(
                f"{name}: its nodes are{'' if one.label else ' not'} of an older opset; declared otherwise"
            )
        if one.runs and one.ir != ir_version(one.exporter, one.opset):
            differences.append(f"{name}: IR version {one.ir}, declared: {ir_version(one.exporter, one.opset)}")
    return [*differences, *_correct(differences, version, torch_row(exports))]


def ort_differences(version: str, measured: Ort, row: Ort) -> list[str]:
    """Return how the newest IR version and opset that an ONNX Runtime reads differ from a row, with the measured row
    last."""
    differences = []
    if measured.ir != row.ir:
        differences.append(f"ONNX Runtime {version} reads IR versions up to {measured.ir}, declared: {row.ir}")
    if measured.opset != row.opset:
        differences.append(f"ONNX Runtime {version} reads opsets up to {measured.opset}, declared: {row.opset}")
    return [*differences, *_correct(differences, version, measured)]


def _correct(differences: Sequence[str], version: str, row: Torch | Ort) -> list[str]:
    return [f"The row that was measured: {source(version, row)}"] if differences else []


def _range(opsets: Iterable[int]) -> range:
    """Return the longest run of consecutive opsets, of equal ones the newest."""
    best = now = range(0)
    for opset in sorted({*opsets}):
        now = range(now.start, opset + 1) if now and opset == now.stop else range(opset, opset + 1)
        best = max(best, now, key=len) if len(now) != len(best) else now
    return best
