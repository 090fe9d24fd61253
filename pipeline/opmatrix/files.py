"""Write files whole or not at all, hash them, and load Python files without a cache."""

from __future__ import annotations

import hashlib
import os
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType


def write_bytes(path: Path, content: bytes) -> None:
    """Write and rename, so that no reader sees half a file; a file with equal content stays untouched."""
    try:
        if path.read_bytes() == content:
            return
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Call `write_bytes` with the text in UTF-8."""
    write_bytes(path, text.encode())


def sha256(path: Path) -> str:
    """Return the digest of a file as hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digests_by_path(files: Iterable[Path], root: Path) -> dict[str, str]:
    """Return the digest of each file by its path below `root`."""
    return {path.relative_to(root).as_posix(): sha256(path) for path in files}


def line_in(path: Path | str, error: BaseException) -> int | None:
    """Return the line of a syntax error in a Python file, else the last line of the file in the traceback."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return lines[-1] if lines else None


def load_module(path: Path, name: str) -> ModuleType:
    """Execute a file as a module, not in sys.modules nor from bytecode, whose time stamp and size an edit may keep."""
    module = ModuleType(name)
    module.__file__ = str(path)
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module
