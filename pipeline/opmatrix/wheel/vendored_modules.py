"""The modules of opmatrix that a wheel needs at run time: copied to `_opmatrix` in it, their imports rewritten."""

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
    """Return the modules to copy: all that `ENTRIES` import, directly or not, without `__init__.py`."""
    found = {path for entry in ENTRIES for path in code_hash.reached(entry)}
    return tuple(sorted(path for path in found if path.name != "__init__.py"))


def render(package: str, *, version: str) -> dict[str, str]:
    """Return the files of `_opmatrix` by their paths below `package`, with an `__init__.py` in each folder."""
    head = f"# Of opmatrix {version}, which is under the Apache License 2.0: see LICENSE in this folder.\n"
    copied = {
        path.relative_to(code_hash.PACKAGE): rewrite_imports(path.read_text(encoding="utf-8"), package)
        for path in sources()
    }
    folders = {parent for path in copied for parent in path.parents}
    made = {folder / "__init__.py": f'"""Of opmatrix {version}."""\n' for folder in folders}
    return {f"{PACKAGE}/{path.as_posix()}": head + text for path, text in sorted({**copied, **made}.items())} | {
        f"{PACKAGE}/LICENSE": LICENSE.read_text(encoding="utf-8")
    }


def rewrite_imports(text: str, package: str) -> str:
    """Return Python source with its imports of opmatrix rewritten to those of the wheel."""
    return _IMPORT.sub(rf"\1{package}.{PACKAGE}", text)


def rewrite_handwritten(text: str, package: str, *, shown: str, vendored: Mapping[str, object]) -> str:
    """Return the source of a handwritten file with its imports rewritten.

    Raises DistError if it imports a module of opmatrix or of ops/ that is not in `vendored`.
    """
    for module in re.findall(r"^\s*(?:from|import) ((?:opmatrix|ops)\b[\w.]*)", text, re.MULTILINE):
        path = f"{PACKAGE}/{module.removeprefix('opmatrix').strip('.').replace('.', '/')}.py"
        if path not in vendored:
            raise DistError(f"{shown} imports {module}, which no wheel has: it must work by itself there")
    return rewrite_imports(text, package)
