"""Find third-party headers in folders of the project, or in packages of PyPI by their metadata, without an import."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path, PurePosixPath

from opmatrix.errors import CompileError, did_you_mean
from opmatrix.spec import Headers, OpSpec


def versions(spec: OpSpec) -> list[str]:
    """Return the packages that its libraries depend on: ``cmeel-eigen 3.4.1``, or ``cmeel-eigen is missing``."""
    return [_version(headers.distribution) for headers in spec.headers if headers.distribution]


def state(root: Path, folder: str, distribution: str | None) -> object:
    """Return the input of a plan: the version of a distribution, or the files of a folder of the project."""
    return _version(distribution) if distribution else _files(root / folder)


def find(spec: OpSpec, root: Path) -> list[Path]:
    """Return the include folders. Raises CompileError for a missing one."""
    return [_find(spec, headers, root) for headers in spec.headers]


def files(spec: OpSpec, root: Path) -> tuple[Path, ...]:
    """Return the files of those folders that belong to the project."""
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
    # The uppermost folders with files in or under a folder `include`.
    files = [PurePosixPath(file) for file in found.files or ()]
    parents = {file.parent for file in files if "include" in file.parent.parts}
    known = sorted(str(p) for p in parents if parents.isdisjoint(p.parents))
    raise CompileError(
        f"{where}: {headers.distribution} {found.version} installs no folder {headers.folder!r}. It has headers in: "
        f"{', '.join(known) or 'none that is called include'}{did_you_mean(headers.folder, known)}"
    )


def _installed(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
