"""A project on this machine: its root, its settings in pyproject.toml, the installed versions, and the chosen cells.

Versions are read without importing the packages, because every doit command needs them.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import ToolchainError, UsageError
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
    if not (folder / "dodo.py").is_file():
        return False
    try:
        read = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return False
    found: object = read.get("tool", {}).get("doit", {}).get("loader")
    return found == "opmatrix"


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
    try:
        read = tomllib.loads((paths.root / "pyproject.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"pyproject.toml: {error}") from error
    found = read.get("tool", {}).get("opmatrix", {}).get(table, {})
    if not isinstance(found, dict):
        raise UsageError(f"pyproject.toml: [tool.opmatrix]: {table}: found {found!r}, allowed: a table")
    return found


def step_seconds(paths: Paths) -> float:
    """Return the time limit of a step: pyproject.toml's [tool.opmatrix.limits] seconds, else 300."""
    return _limit(paths, "seconds", 300)


def step_megabytes(paths: Paths) -> float:
    """Return the memory limit of a step: [tool.opmatrix.limits] megabytes, else half of the machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _limit(paths, "megabytes", memory // 2_000_000)


def step_written(paths: Paths) -> float:
    """Return how many megabytes a step may write: [tool.opmatrix.limits] written, else WRITTEN."""
    return _limit(paths, "written", WRITTEN)


def _limit(paths: Paths, name: str, default: float) -> float:
    found = settings(paths, "limits").get(name, default)
    if not isinstance(found, int | float) or not found > 0:
        raise UsageError(f"pyproject.toml: [tool.opmatrix.limits]: {name}: found {found!r}, allowed: a number above 0")
    return float(found)


def default_opsets(paths: Paths) -> Mapping[Exporter, Sequence[int]]:
    """Return the opsets per exporter in [tool.opmatrix.opsets] of pyproject.toml. Raises UsageError."""
    named = settings(paths, "opsets")
    where = "pyproject.toml: [tool.opmatrix.opsets]"
    for exporter in EXPORTERS:
        opsets = named.get(exporter)
        if not isinstance(opsets, list) or not all(isinstance(o, int) for o in opsets):
            raise UsageError(f"{where}: {exporter}: found {opsets!r}, allowed: a list of opsets such as [18, 20]")
        torches = tuple(rows().torch) if exporter in TORCH_EXPORTERS else (None,)
        for opset in opsets:
            if all(reasons := [why_unsupported(exporter, opset, torch) for torch in torches]):
                raise UsageError(f"{where}: {exporter}: {reasons[-1]}")
    return {e: tuple(named[e]) for e in EXPORTERS}


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

    def found(factor: str, known: Iterable[str], main: str) -> Mapping[str, bool]:
        pinned = [v for v in known if v == main or all(p.is_file() for p in paths.pins(f"{factor}{v}"))]
        return {v: v == main or paths.stamp(f"{factor}{v}").is_dir() for v in pinned}

    return found("torch", rows().torch, minor(versions.torch)), found("ort", rows().ort, minor(versions.onnxruntime))
