"""Compile the generated files of one kind of all operators in this repository as one file.

Most of the time goes to the headers of a framework, so 20 operators take hardly longer than one.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opmatrix.codegen import write_code
from opmatrix.declaration.load import load_operator, operator_names
from opmatrix.project.paths import Paths
from opmatrix.spec import Headers
from tests.support.projects import ROOT

PROJECTS = [
    ".",
    *(str(path.parent.relative_to(ROOT)) for path in sorted(ROOT.glob("examples/*/ops"))),
    *(str(path.parent.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/projects/*/ops"))),
]


@dataclass(frozen=True, kw_only=True)
class Bindings:
    """Copies of all projects, and the generated folder of each operator; of two operators with one name the first."""

    layouts: Sequence[Paths]
    folders: Sequence[Path]

    def files(self, name: str) -> list[Path]:
        """Return the generated file `name`, such as ``torch.cc``, of each operator that has one."""
        return [folder / name for folder in self.folders if (folder / name).exists()]

    def errors(self, files: Sequence[Path], command: Sequence[str], folder: Path) -> str:
        """Compile `files` as one file, without an object file; return the compiler's errors, "" if there are none."""
        program = folder / "all.cc"
        program.write_text("".join(f'#include "{path}"\n' for path in files))
        first = self.layouts[0]
        headers = {paths.root / h.folder for paths in self.layouts for h in _headers(paths) if not h.distribution}
        places = [first.include, first.binding, *(paths.native for paths in self.layouts)]
        includes = [*(f"-I{place}" for place in places), *(f"-isystem{place}" for place in sorted(headers))]
        flags = ["-fsyntax-only", *includes, str(program)]
        done = subprocess.run([*command, *flags], capture_output=True, text=True)
        assert done.returncode != 0 or not done.stderr, done.stderr
        return done.stderr

    def classic(self, include: Path, standard: str) -> list[str]:
        """Return the flags for bindings over torch's headers, without the warnings of these headers."""
        places = (f"-I{self.layouts[0].binding / 'classic'}", f"-isystem{include}")
        return [f"-std={standard}", *places, f"-isystem{include / 'torch/csrc/api/include'}"]


def generate(folder: Path) -> Bindings:
    """Generate the files of all operators."""
    layouts: list[Paths] = []
    folders: dict[str, Path] = {}
    for number, project in enumerate(PROJECTS):
        paths = _copy(project, folder / str(number))
        layouts.append(paths)
        for name in operator_names(paths):
            operator = load_operator(paths, name)
            if name not in folders and operator.spec.kernel != "":  # which those of tests/projects/gradients have
                write_code.run(paths, operator)
                folders[name] = paths.generated(name)
    return Bindings(layouts=layouts, folders=[*folders.values()])


def _headers(paths: Paths) -> list[Headers]:
    return [headers for name in operator_names(paths) for headers in load_operator(paths, name).spec.headers]


def _copy(project: str, folder: Path) -> Paths:
    """Copy the operators of a project and what they include, with opmatrix's headers."""
    ignored = shutil.ignore_patterns("__pycache__")
    for part in ("ops", "native", "third_party"):
        if (ROOT / project / part).is_dir():
            shutil.copytree(ROOT / project / part, folder / part, ignore=ignored)
    for part in ("include", "binding"):
        shutil.copytree(ROOT / "native" / part, folder / "native" / part, dirs_exist_ok=True)
    (folder / "dodo.py").touch()
    shutil.copy(ROOT / "pyproject.toml", folder)
    return Paths(folder)
