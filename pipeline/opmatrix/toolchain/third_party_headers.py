"""Find third parties' headers that a declaration names: folders of the project, or of packages from PyPI.

Nothing of a package is imported: what is installed, and where, is in its metadata.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path, PurePosixPath

from opmatrix.errors import CompileError, did_you_mean
from opmatrix.spec import Headers, OpSpec


def versions(spec: OpSpec) -> list[str]:
    """Return what its libraries depend on beside files of the project: ``cmeel-eigen 3.4.1``, or that it is missing."""
    return [_version(headers.distribution) for headers in spec.headers if headers.distribution]


def state(root: Path, folder: str, distribution: str | None) -> object:
    """Return what a plan follows from: the version of a distribution, or which files a folder of the project has."""
    return _version(distribution) if distribution else _files(root / folder)


def find(spec: OpSpec, root: Path) -> list[Path]:
    """Return the folders for the compiler. Raises CompileError for one that is not there."""
    return [_find(spec, headers, root) for headers in spec.headers]


def files(spec: OpSpec, root: Path) -> tuple[Path, ...]:
    """Return the files in those folders that the project itself holds."""
    return tuple(p for headers in spec.headers if headers.distribution is None for p in _files(root / headers.folder))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _version(distribution: str) -> str:
    found = _installed(distribution)
    return f"{distribution} {found.version if found else 'is missing'}"


def _find(spec: OpSpec, headers: Headers, root: Path) -> Path:
    where = f"ops/{spec.name}/spec.py: headers"
    if headers.distribution is None:
        if (folder := root / headers.folder).is_dir():
            return folder
        raise CompileError(f"{where}: the project has no folder {headers.folder!r}. Make it, or name another")
    found = _installed(headers.distribution)
    if found is None:
        raise CompileError(
            f"{where}: the package {headers.distribution!r} is not installed. Install it: {sys.executable} -m pip "
            f"install {headers.distribution}; in a checkout of opmatrix, pin it in requirements/main.in as well, and "
            "lock it (main.txt there says how)"
        )
    folder = Path(str(found.locate_file(headers.folder)))
    if folder.is_dir():
        return folder
    known = _folders(found)
    raise CompileError(
        f"{where}: {headers.distribution} {found.version} installs no folder {headers.folder!r}. It has headers in: "
        f"{', '.join(known) or 'none that is called include'}{did_you_mean(headers.folder, known)}"
    )


def _installed(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _folders(found: metadata.Distribution) -> list[str]:
    """Return the uppermost folders that hold files in or under a folder ``include``."""
    parents = {PurePosixPath(file).parent for file in found.files or () if "include" in PurePosixPath(file).parts[:-1]}
    return sorted(str(p) for p in parents if parents.isdisjoint(p.parents))
