"""Find third parties' headers, in folders of the project or packages of PyPI, and those of a torch in any environment.

Nothing is imported. A library over torch's C++ ABI fits one build of torch: its version, and the ABI of its
std::string, which differs between builds of one version (torch 2.6.0 has both).
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

from opmatrix.basics.errors import CompileError, ToolchainError, did_you_mean
from opmatrix.basics.version import minor, older
from opmatrix.spec import Headers, OpSpec
from opmatrix.toolchain.symbols import has_symbol_prefix, needed_libraries


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


# https://gcc.gnu.org/onlinedocs/libstdc++/manual/using_dual_abi.html: the two names of std::string, in the constructor
# of c10::Error, which every torch exports.
_OLD_STRING, _NEW_STRING = b"_ZN3c105ErrorC2ENS_14SourceLocationESs", b"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx11"


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """One build of torch. `version` is torch.__version__, ``2.6.0+cu124``; `openmp` is its libgomp, if it has one."""

    version: str
    include: Path
    openmp: Path | None
    cxx11_abi: bool

    @property
    def minor(self) -> str:
        """The version in the name of a cell: ``2.6``."""
        return minor(self.version)

    @property
    def standard(self) -> str:
        """The C++ standard for its headers: torch 2.15 asks for C++20, 1.13 was written for C++14."""
        return "c++17" if older(self.version, "2.15") else "c++20"

    @property
    def includes(self) -> tuple[Path, Path]:
        return (self.include, self.include / "torch/csrc/api/include")

    @property
    def libraries(self) -> tuple[Path, ...]:
        """The libraries to link a binding with, so that the linker reports symbols which this torch lacks."""
        lib = self.include.parent / "lib"
        return (lib / "libtorch_cpu.so", lib / "libc10.so", *([self.openmp] if self.openmp else ()))

    @property
    def identity(self) -> str:
        """The build that a library must be compiled for, to load in this torch."""
        return identity(self.version, cxx11_abi=self.cxx11_abi)


def identity(version: str, *, cxx11_abi: bool) -> str:
    """Return the string that identifies a build of torch in the folder of the libraries that fit it."""
    return f"{version} with the {'new' if cxx11_abi else 'old'} C++ ABI"


def find_torch_build(place: Path) -> TorchBuild:
    """Return the torch in `place`: an environment, its site-packages, or torch's folder. Raises ToolchainError."""
    folders = (place, place / "torch", *sorted(place.glob("lib/python3*/site-packages/torch")))
    torch = next((folder for folder in folders if (folder / "version.py").is_file()), None)
    if torch is None:
        raise ToolchainError(
            f"no torch in '{place}'. Give the folder of an environment that has torch, or its site-packages"
        )
    found = re.search(
        r"^__version__ = ['\"](\S+)['\"]", (torch / "version.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    if found is None:
        raise ToolchainError(f"'{torch / 'version.py'}' names no version. Reinstall torch.")
    include, c10, cpu = torch / "include", torch / "lib/libc10.so", torch / "lib/libtorch_cpu.so"
    if missing := [p for p in (include / "torch/library.h", c10, cpu) if not p.is_file()]:
        raise ToolchainError(f"torch {found[1]} has no '{missing[0]}'. Reinstall torch.")
    # The libgomp of the torch package: a second one in the process would have its own threads.
    names = (name for name in needed_libraries(cpu) if name.startswith("libgomp"))
    openmp = next((path for name in names if (path := cpu.with_name(name)).is_file()), None)
    old, new = has_symbol_prefix(c10, _OLD_STRING, _NEW_STRING)
    if old == new:
        raise ToolchainError(
            f"'{c10}' does not show which C++ ABI torch {found[1]} was built with. Is it torch's own library? "
            "Reinstall torch."
        )
    return TorchBuild(version=found[1], include=include, openmp=openmp, cxx11_abi=new)
