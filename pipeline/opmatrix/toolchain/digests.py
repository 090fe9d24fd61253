"""The digests of objects and of the libraries that are linked of them. `opmatrix.wheel.verified` compares them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from opmatrix.files import digests_by_path, write_text


def write(into: Path, root: Path, *, objects: Iterable[Path], libraries: Iterable[Path]) -> None:
    """Write the digest of each file by its path in the project `root`."""
    found = {"objects": digests_by_path(objects, root), "libraries": digests_by_path(libraries, root)}
    write_text(into, json.dumps(found, indent=1) + "\n")
