"""Compile the generated torch bindings of all operators in this repository as one file.

Most of the time goes to torch's headers, so 20 operators take hardly longer than one.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opmatrix.declaration.load import load_operator, operator_names
from opmatrix.declaration.torch_signature import OWN_TORCH, has_torch_library
from opmatrix.project.paths import Paths
from opmatrix.stages import codegen
from tests.support.projects import ROOT

PROJECTS = [
    ".",
    *(str(path.parent.relative_to(ROOT)) for path in sorted(ROOT.glob("examples/*/ops"))),
    *(str(path.parent.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/projects/*/ops"))),
]


@dataclass(frozen=True, kw_only=True)
class Bindings:
    """Copies of all projects, and the generated torch.cc of each operator; of two operators with one name the first."""

    layouts: Sequence[Paths]
    files: Sequence[Path]

    def errors(self, files: Sequence[Path], command: Sequence[str], folder: Path) -> str:
        """Compile `files` as one file, without an object file; return the compiler's errors, "" if there are none."""
        program = folder / "all.cc"
        program.write_text("".join(f'#include "{path}"\n' for path in files))
        first = self.layouts[0]
        places = [first.include, first.binding, *(layout.native for layout in self.layouts)]
        flags = ["-fsyntax-only", *(f"-I{place}" for place in places), str(program)]
        done = subprocess.run([*command, *flags], capture_output=True, text=True)
        assert done.returncode != 0 or not done.stderr, done.stderr
        return done.stderr

    def command(self, include: Path, standard: str) -> list[str]:
        """Return the command that compiles bindings over torch's headers, without the warnings of these headers."""
        places = (f"-I{self.layouts[0].binding / 'classic'}", f"-isystem{include}")
        return ["g++", "-w", f"-std={standard}", *places, f"-isystem{include / 'torch/csrc/api/include'}"]


def generate(folder: Path) -> Bindings:
    """Write the bindings of all operators."""
    layouts: list[Paths] = []
    files: dict[str, Path] = {}
    for number, project in enumerate(PROJECTS):
        layout = _copy(project, folder / str(number))
        layouts.append(layout)
        for name in operator_names(layout):
            operator = load_operator(layout, name)
            generated = has_torch_library(operator.spec) and OWN_TORCH not in operator.handwritten_files
            if generated and name not in files:
                codegen.run(layout, operator)
                files[name] = layout.generated(name) / "torch.cc"
    return Bindings(layouts=layouts, files=[*files.values()])


def _copy(project: str, folder: Path) -> Paths:
    """Copy the operators of a project, with opmatrix's headers."""
    ignored = shutil.ignore_patterns("__pycache__")
    for part in ("ops", "native"):
        shutil.copytree(ROOT / project / part, folder / part, ignore=ignored)
    for part in ("include", "binding"):
        shutil.copytree(ROOT / "native" / part, folder / "native" / part, dirs_exist_ok=True)
    (folder / "dodo.py").touch()
    shutil.copy(ROOT / "pyproject.toml", folder)
    return Paths(folder)
