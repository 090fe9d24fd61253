"""A project on this machine: its root, its format, its settings in pyproject.toml, the installed versions, and the
chosen cells. Versions are read without importing the packages, because every doit command needs them.

A project names its format in pyproject.toml, ``[tool.opmatrix] format = 1``: what its files import from opmatrix, and
the names that they use. The number rises when opmatrix would misread or reject the files of older projects; `opmatrix
update` then rewrites them. A project that names none has format 0: its files import the package `pipeline`.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from opmatrix.basics.errors import ToolchainError, UsageError, did_you_mean
from opmatrix.basics.version import minor
from opmatrix.project.cells import (
    EXPORTERS,
    TORCH_EXPORTERS,
    Cell,
    Choice,
    Exporter,
    choose_cells,
    rows,
    why_unsupported,
)
from opmatrix.project.paths import Paths
from opmatrix.project.work_folder import WRITTEN

_T = TypeVar("_T")
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The installed versions that results depend on, as their packages print them: ``2.13.0+cpu``."""

    torch: str
    onnx: str
    onnxscript: str
    onnxruntime: str
    numpy: str
    hypothesis: str


PACKAGES = tuple(field.name for field in fields(Versions))


def find_root(start: Path) -> Path:
    """Return the nearest folder from `start` upwards with a dodo.py. Raises UsageError."""
    for folder in (start, *start.parents):
        if (folder / "dodo.py").is_file():
            return folder
    raise UsageError(f"no dodo.py in {str(start)!r} or above it; go to the folder of the project, or make one: "
                     "opmatrix new --project DIR")  # fmt: skip


def is_project(folder: Path) -> bool:
    """Return whether a folder is a project of opmatrix, not another doit project, by the loader in pyproject.toml."""
    with suppress(OSError, UsageError):
        found: object = pyproject(folder).get("tool", {}).get("doit", {}).get("loader")
        return found == "opmatrix" and (folder / "dodo.py").is_file()
    return False


def pyproject(root: Path) -> dict[str, Any]:
    """Return what a pyproject.toml contains, nothing where there is none. Raises UsageError if it is no TOML."""
    try:
        return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"pyproject.toml: {error}") from error


def read_format(root: Path) -> int:
    """Return the format of the project in `root`, 0 where it names none. Raises UsageError if it is no number."""
    try:
        text = (root / "pyproject.toml").read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0
    if f"[tool.opmatrix]\nformat = {FORMAT}\n" in text:  # as `opmatrix new` writes it; tomllib costs each command 2 ms
        return FORMAT
    number: object = pyproject(root).get("tool", {}).get("opmatrix", {}).get("format", 0)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise UsageError(f"pyproject.toml: [tool.opmatrix]: format: found {number!r}, allowed: a number up to {FORMAT}")
    return number


def check_path(root: Path) -> None:
    """Raise UsageError if build.ninja, the compiler's depfiles or the state cannot contain the path of a project."""
    path = str(root)
    found = next((repr(c) for c in "\n\r|" if c in path), None)
    if not path.isascii() and path.encode(errors="ignore").decode() != path:
        found = "bytes that are not UTF-8"
    if found:
        raise UsageError(
            f"the path of the project contains {found}: {path!a}. Nothing can be built there. Rename the folder"
        )


def check_format(root: Path) -> None:
    """Raise UsageError if the project in `root` has another format than this opmatrix reads, or a path in which
    nothing can be built."""
    check_path(root)
    if (found := read_format(root)) != FORMAT:
        update = "Update the project's files with: opmatrix update"
        newer = "Install a newer opmatrix: pip install --upgrade opmatrix"
        raise UsageError(f"this project has format {found} (pyproject.toml: [tool.opmatrix] format), and the installed "
                         f"opmatrix reads format {FORMAT}. {update if found < FORMAT else newer}")  # fmt: skip


@cache
def installed() -> Versions:
    """Return the versions of the environment. Raises ToolchainError for a missing package."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError as error:
            raise ToolchainError(f"{package} is not installed for {sys.executable}; in a checkout of opmatrix use "
                                 "`./run doit` and `./run python`, else pip install opmatrix") from error  # fmt: skip
    return Versions(**found)


def settings(paths: Paths, table: str) -> Mapping[str, Any]:
    """Return the table [tool.opmatrix.<table>] of the project's pyproject.toml, or an empty one. Raises UsageError."""
    toml_table = pyproject(paths.root).get("tool", {}).get("opmatrix", {}).get(table, {})
    if not isinstance(toml_table, dict):
        raise UsageError(f"pyproject.toml: [tool.opmatrix]: {table}: found {toml_table!r}, allowed: a table")
    return toml_table


def setting(
    right: Callable[[Any], Any] = lambda _: True,
    allowed: str = "",
    *,
    key: str | None = None,
    variable: str = "",
    parse: Callable[[Any], Any] = lambda value: tuple(value) if isinstance(value, list) else value,
    **default: Any,
) -> Any:
    """Return a field of a dataclass of settings, whose `TABLE` names the table; without a default it is required.

    `right`: whether a value is right; without `allowed`, a list of what is wrong. `key`: the name in the table if it is
    not the field's, "" if only a variable sets it. `variable`: the environment variable that overrides the table. The
    string below the field is its line in docs/reference/commands.md.
    """
    how = {"right": right, "allowed": allowed, "key": key, "variable": variable, "parse": parse}
    return field(metadata=how, **default)


def key_of(one: Any) -> str:
    """Return the key of a field in its table, "" if only a variable sets it."""
    return str(one.name if one.metadata["key"] is None else one.metadata["key"])


def read_values(
    table: Any,
    toml_table: Mapping[str, Any],
    environ: Mapping[str, str],
    further: Callable[[Mapping[str, Any]], Iterable[str]] = lambda _: (),
) -> dict[str, Any]:
    """Return the settings that are in `toml_table`, of pyproject.toml, or in `environ`, by the names of fields.

    Raises UsageError with all mistakes, one per line; `further` returns those of several settings together.
    """
    where, values = f"pyproject.toml: [tool.opmatrix.{table.TABLE}]", dict[str, Any]()
    keys = [*filter(None, map(key_of, fields(table)))]
    mistakes = [
        f"{where}: {key}: unknown setting, allowed: {', '.join(keys)}{did_you_mean(key, keys)}"
        for key in toml_table
        if key not in keys
    ]
    for one in fields(table):
        key, variable, required = key_of(one), one.metadata["variable"], one.default is one.default_factory
        places = [(f"{where}: {key}", toml_table.get(key))] if key in toml_table or required else []
        places += [(variable, environ[variable])] if environ.get(variable) else []
        for place, values[one.name] in places:
            mistakes += [f"{place}: {text}" for text in _wrong(values[one.name], one.metadata)]
    if mistakes := [*mistakes, *further(values)]:
        raise UsageError("\n".join(mistakes))
    return {one.name: one.metadata["parse"](values[one.name]) for one in fields(table) if one.name in values}


def _wrong(value: Any, how: Mapping[str, Any]) -> Sequence[str]:
    right, allowed = how["right"](value), how["allowed"]
    return right if not allowed else [] if right else [f"found {value!r}, allowed: {allowed}"]


def read_settings(paths: Paths, table: type[_T]) -> _T:
    """Return the settings of a table. Raises UsageError with all mistakes."""
    of: Any = table
    return table(**read_values(table, settings(paths, of.TABLE), {}))


def one_of(*values: str) -> tuple[Callable[[Any], bool], str]:
    """Return the check of a setting that has one of some values."""
    return lambda value: value in values, ", ".join(map(repr, values))


_limit = partial(setting, lambda value: isinstance(value, int | float) and value > 0, "a number above 0", parse=float)


@dataclass(frozen=True, kw_only=True)
class StepLimits:
    """The limits of a step."""

    TABLE: ClassVar[str] = "limits"
    seconds: float = _limit(default=300.0)
    """how long a step may run, and how long `doit bench` waits for one peer; 300 without it"""
    megabytes: float = _limit(
        default_factory=lambda: float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2_000_000)
    )
    """how much memory a step may hold, with all that it starts; without it half of the machine's"""
    written: float = _limit(default=WRITTEN)
    """how many megabytes a step may write to files, with all that it starts; 4000 without it"""


def step_limits(paths: Paths) -> StepLimits:
    """Return the limits of a step. Raises UsageError."""
    return read_settings(paths, StepLimits)


def _wrong_opsets(exporter: Exporter, opsets: Any) -> Sequence[str]:
    if not isinstance(opsets, list) or not all(isinstance(o, int) for o in opsets):
        return [f"found {opsets!r}, allowed: a list of opsets such as [18, 20]"]
    torches = tuple(rows().torch) if exporter in TORCH_EXPORTERS else (None,)
    reasons = [[why_unsupported(exporter, opset, torch) for torch in torches] for opset in opsets]
    return [str(each[-1]) for each in reasons if all(each)]


@dataclass(frozen=True, kw_only=True)
class Opsets:
    """The opsets of the cells that doit verifies by itself, by exporter."""

    TABLE: ClassVar[str] = "opsets"
    legacy: tuple[int, ...] = setting(partial(_wrong_opsets, "legacy"))
    """opsets of the legacy exporter, of the cells that `./run doit` verifies by itself: a list"""
    dynamo: tuple[int, ...] = setting(partial(_wrong_opsets, "dynamo"))
    """the same of the dynamo exporter"""
    node: tuple[int, ...] = setting(partial(_wrong_opsets, "node"))
    """the same of one-node models, of operators that exist in ONNX alone"""


def default_opsets(paths: Paths) -> Mapping[Exporter, Sequence[int]]:
    """Return the opsets per exporter. Raises UsageError."""
    found = read_settings(paths, Opsets)
    return {exporter: getattr(found, exporter) for exporter in EXPORTERS}


def chosen_cells(paths: Paths, choice: Choice = Choice(), *, versions: Versions | None = None) -> tuple[Cell, ...]:  # noqa: B008 - it is frozen
    """Return the cells that the doit variables choose, by default those of this environment. Raises UsageError."""
    versions = versions or installed()
    torches, orts = with_environment(paths, versions=versions)
    torch, ort = minor(versions.torch), minor(versions.onnxruntime)
    found = choose_cells(choice, default=default_opsets(paths), torch=torch, ort=ort, torches=torches, orts=orts)
    return tuple(found)


def pinned_versions(paths: Paths, factor: str) -> list[str]:
    """Return the versions of torch or ONNX Runtime for which the project itself has pins."""
    folder, _ = paths.requirements
    names = [path.name for path in folder.glob(f"{factor}[0-9]*.txt")] if folder.is_dir() else []
    return [found[1] for name in sorted(names) if (found := re.fullmatch(rf"{factor}(\d+\.\d+)\.txt", name))]


def with_environment(
    paths: Paths, *, versions: Versions | None = None
) -> tuple[Mapping[str, bool], Mapping[str, bool]]:
    """Return the versions of torch and of ONNX Runtime with pins, each with whether it has an environment. The
    installed versions have one."""
    versions = versions or installed()

    def pinned(factor: str, with_rows: Iterable[str], main: str) -> Mapping[str, bool]:
        usable = [v for v in with_rows if v == main or all(p.is_file() for p in paths.pins(f"{factor}{v}"))]
        return {v: v == main or paths.stamp(f"{factor}{v}").is_dir() for v in usable}

    return pinned("torch", rows().torch, minor(versions.torch)), pinned("ort", rows().ort, minor(versions.onnxruntime))
