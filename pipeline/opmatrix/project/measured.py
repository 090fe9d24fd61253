"""The versions that a project has measured itself, ``[tool.opmatrix.matrix]`` of its pyproject.toml, and the line about
those that nobody has measured.

    [tool.opmatrix.matrix]
    torch."2.16" = { legacy = [7, 20], dynamo = [18, 25], label = [21, 23] }
    ort."1.33" = { ir = 14, opset = 27 }
    onnx = "1.24"

`opmatrix probe` writes the table. The fields of a row are those of `opmatrix.matrix.cells.Torch` and `Ort`; a list has
the first and the last opset. onnx, onnxscript and python have no rows: the newest version is written.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opmatrix.errors import UsageError
from opmatrix.files import write_text
from opmatrix.matrix import cells
from opmatrix.matrix.cells import NEWEST, ORT, TORCH, Ort, Rows, Torch, nearest_older
from opmatrix.project.paths import Paths, shipped
from opmatrix.project.settings import Versions, pinned_versions, settings
from opmatrix.version import minor, numbers, older

TABLE = "[tool.opmatrix.matrix]"
MEASURE = "opmatrix probe"
_OPSETS = ("legacy", "dynamo", "label")
_FACTORS = ("torch", "ort")
_PACKAGES = {"torch": "torch", "ort": "onnxruntime"}
_NO_DYNAMO = "wrote none of the opsets that `opmatrix probe` tried"

_KEY = re.compile(r"""^[^#\n]*\bmatrix["']?\s*[].=]""", re.MULTILINE)  # compiled before a server forks its steps


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The rows that a project has measured, and the newest version of what has no rows, "" for none."""

    torch: Mapping[str, Torch]
    ort: Mapping[str, Ort]
    newest: Mapping[str, str]


def read(paths: Paths) -> Measured:
    """Return the table of the project. Raises UsageError for a value that is not allowed."""
    found = settings(paths, "matrix") if _may_have_table(paths) else {}
    for name in found:
        if name not in (*_FACTORS, *NEWEST):
            allowed = ", ".join((*_FACTORS, *NEWEST))
            raise UsageError(f"pyproject.toml: {TABLE}: unknown name {name!r}; allowed: {allowed}. `{MEASURE}` writes "
                             "this table")  # fmt: skip
    rows: dict[str, Any] = {factor: found.get(factor, {}) for factor in _FACTORS}
    for factor, table in rows.items():
        if not isinstance(table, dict) or not all(map(_is_version, table)):
            raise _wrong(factor, table, f'rows of minor versions, such as {factor}."1.33"')
    newest = {name: found[name] for name in NEWEST if name in found}
    for name, version in newest.items():
        if not _is_version(version):
            raise _wrong(name, version, 'a minor version such as "1.24"')
    return Measured(
        torch={version: _torch(f'torch."{version}"', row) for version, row in rows["torch"].items()},
        ort={version: _ort(f'ort."{version}"', row) for version, row in rows["ort"].items()},
        newest=newest,
    )


def use_rows(paths: Paths, versions: Versions | None = None) -> Measured:
    """Let this process use the rows of the project: the shipped ones, those that it has measured and, for the installed
    and pinned versions that have none, the nearest older ones. Raises UsageError for a version older than all rows.

    `versions`: None in an environment of the matrix, which lacks a part of the packages.
    """
    found = read(paths)
    tables: dict[str, dict[str, Any]] = {"torch": {**TORCH, **found.torch}, "ort": {**ORT, **found.ort}}
    guessed = set()
    for factor, table in tables.items():
        measured = dict(_sorted(table))
        named = {*pinned_versions(paths, factor), *([_installed(factor, versions)] if versions else [])}
        table.update({version: nearest_older(factor, measured, version) for version in named})
        guessed |= {f"{factor}{version}" for version in named - measured.keys()}
    rows = {factor: dict(_sorted(table)) for factor, table in tables.items()}
    cells.use_rows(Rows(**rows, guessed=frozenset(guessed)))
    return found


def unmeasured(found: Measured, versions: Versions) -> str:
    """Return a line about the installed versions that nobody has measured, "" if there are none.

    torch and ONNX Runtime have rows, so it also names a version between two rows. Of onnx, onnxscript and Python only
    the newest measured version is known: it names newer ones alone.
    """
    unknown = []
    for factor, shipped_rows in (("torch", TORCH), ("ort", ORT)):
        known, version = {*shipped_rows, *getattr(found, factor)}, _installed(factor, versions)
        if version not in known and (nearest := max((v for v in known if older(v, version)), key=numbers, default="")):
            unknown.append(f"{_PACKAGES[factor]} {version} is used as {nearest}")
    for name in NEWEST:
        version, newest = _installed(name, versions), {**NEWEST, **found.newest}[name]
        if older(newest, version):
            unknown.append(f"{name} {version} is used as {newest}")
    return f"not measured: {', '.join(unknown)}. To measure: {MEASURE}" if unknown else ""


def newer(found: Measured, versions: Versions) -> dict[str, str]:
    """Return the lines of the table for what has no rows and is installed in a newer version than was measured."""
    now = {name: _installed(name, versions) for name in NEWEST}
    return {name: f'"{version}"' for name, version in now.items() if older({**NEWEST, **found.newest}[name], version)}


def is_checkout(paths: Paths) -> bool:
    """Return whether the project is the checkout of this opmatrix, whose rows are in opmatrix.matrix.cells."""
    return paths.root / "requirements" == shipped("requirements")


def _installed(name: str, versions: Versions) -> str:
    if name == "python":
        return f"{sys.version_info[0]}.{sys.version_info[1]}"
    return minor(getattr(versions, _PACKAGES.get(name, name)))


def _may_have_table(paths: Paths) -> bool:
    """Return False if `matrix` is no key in pyproject.toml: tomllib costs each command 2 ms."""
    try:
        text = (paths.root / "pyproject.toml").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return bool(_KEY.search(text))


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


def _is_version(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d+\.\d+", value) is not None


def _wrong(where: str, found: object, allowed: str) -> UsageError:
    return UsageError(f"pyproject.toml: {TABLE}: {where}: found {found!r}, allowed: {allowed}. `{MEASURE}` writes it")


def _sorted(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(table.items(), key=lambda row: numbers(row[0]))


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
