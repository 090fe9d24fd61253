"""Digests of objects and of the libraries linked from them, with which dist checks a wheel."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from opmatrix.files import sha256, write_text


def write(into: Path, root: Path, *, objects: Iterable[Path], libraries: Iterable[Path]) -> None:
    """Write the digest of each file by its path in the project `root`."""
    found = {
        kind: {path.relative_to(root).as_posix(): sha256(path) for path in dict.fromkeys(files)}
        for kind, files in (("objects", objects), ("libraries", libraries))
    }
    write_text(into, json.dumps(found, indent=1) + "\n")
