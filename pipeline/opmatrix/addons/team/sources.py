"""What a worker plans from: the sources of a project, as one blob in the shared cache."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from opmatrix.basics.files import write_bytes
from opmatrix.project.paths import Paths
from opmatrix.shared_cache.entry import EntryError


def collect(paths: Paths, reads: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of the sources by path: the Python files and pyproject.toml at the top level, the folders of
    operators and pins, and all other files that steps read. Raises OSError."""
    root = paths.root
    files = {*root.glob("*.py"), root / "pyproject.toml"}
    for folder in (paths.ops, paths.native, root / "requirements"):
        files |= {path for path in folder.rglob("*") if "__pycache__" not in path.parts}
    files |= {Path(path) for path in reads if path.startswith(f"{root}/")}
    made = {paths.build, paths.environment("")}
    found = {path.relative_to(root).as_posix(): path for path in files if path.is_file() and not made & {*path.parents}}
    return {name: path.read_bytes() for name, path in sorted(found.items())}


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return sources as a blob: a line of JSON with path and size of each, and their contents."""
    head = [[path, len(content)] for path, content in files.items()]
    return b"".join([json.dumps(head, separators=(",", ":")).encode(), b"\n", *files.values()])


def unpack(blob: bytes) -> dict[str, bytes]:
    """Return the sources in a blob. Raises EntryError for one that `pack` did not make, or with a path that leaves the
    folder."""
    line, _, contents = blob.partition(b"\n")
    files: dict[str, bytes] = {}
    at = 0
    try:
        for path, size in json.loads(line):
            if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
                raise EntryError(f"the sources have the path {path!r}")
            files[path] = contents[at : at + size]
            at += size
    except (ValueError, TypeError) as error:
        raise EntryError(f"the sources are damaged: {error}") from error
    if at != len(contents):
        raise EntryError("the sources are damaged: they have another length than they say")
    return files


def write(files: Mapping[str, bytes], paths: Paths) -> None:
    """Bring the sources of a worker up to date: write what changed, and remove files of earlier sources."""
    root, listed = paths.root, paths.sources_list
    before = json.loads(listed.read_text(encoding="utf-8")) if listed.is_file() else []
    for path in {*before} - files.keys():
        (root / path).unlink(missing_ok=True)
    write_bytes(listed, json.dumps(sorted({*before, *files})).encode())  # first: a killed worker forgets no file
    for path, content in files.items():
        write_bytes(root / path, content)
    write_bytes(listed, json.dumps([*files]).encode())
