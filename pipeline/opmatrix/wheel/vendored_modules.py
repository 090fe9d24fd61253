"""What a wheel holds of opmatrix: the modules that serve it at run time, copied under another name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from opmatrix import code_hash
from opmatrix.errors import DistError
from opmatrix.project.paths import shipped

PACKAGE = "_opmatrix"
ENTRIES = ("opmatrix.wheel_runtime.register", "opmatrix.wheel_runtime.export")
LICENSE = shipped("LICENSE")
_IMPORT = re.compile(r"^(\s*(?:from|import) )(opmatrix)\b", re.MULTILINE)


def sources() -> tuple[Path, ...]:
    """Return the modules that are copied: all that the entries reach, without the packages' own files."""
    found = {path for entry in ENTRIES for path in code_hash.reached(entry)}
    return tuple(sorted(path for path in found if path.name != "__init__.py"))


def render(package: str, *, version: str) -> dict[str, str]:
    """Return the files below `package`: copies that import each other there, and a file for each folder."""
    head = f"# Of opmatrix {version}, which is under the Apache License 2.0: see LICENSE in this folder.\n"
    copied = {path.relative_to(code_hash.PACKAGE): renamed(path.read_text(), package) for path in sources()}
    folders = {parent for path in copied for parent in path.parents}
    made = {folder / "__init__.py": f'"""Of opmatrix {version}."""\n' for folder in folders}
    return {f"{PACKAGE}/{path.as_posix()}": head + text for path, text in sorted({**copied, **made}.items())} | {
        f"{PACKAGE}/LICENSE": LICENSE.read_text()
    }


def renamed(text: str, package: str) -> str:
    """Return Python text whose imports of opmatrix are those of the wheel."""
    return _IMPORT.sub(rf"\1{package}.{PACKAGE}", text)


def written(text: str, package: str, *, shown: str, held: Mapping[str, object]) -> str:
    """Return a file that people wrote as the wheel has it. Raises DistError for an import of what is not in there."""
    for module in re.findall(r"^\s*(?:from|import) ((?:opmatrix|ops)\b[\w.]*)", text, re.MULTILINE):
        path = f"{PACKAGE}/{module.removeprefix('opmatrix').strip('.').replace('.', '/')}.py"
        if path not in held:
            raise DistError(f"{shown} imports {module}, which no wheel has: it must stand on its own there")
    return renamed(text, package)
