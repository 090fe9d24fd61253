"""The generated C++ of all operators of this checkout, read by a compiler in one piece: most of the time goes to the
headers, which all have in common, so that 20 operators take hardly longer than one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opmatrix.declaration.load import load_operator, operator_names
from opmatrix.declaration.torch_signature import OWN_ORT, OWN_TORCH, has_kernel, has_torch_library
from opmatrix.project.paths import Paths
from opmatrix.stages import codegen, headers
from opmatrix.toolchain import ninja_file
from tests.support.projects import ROOT

OWN_FILES = "tests/projects/existing"  # bindings that are not generated, and kernels over other people's headers
PROJECTS = [
    *(".", "examples/borrowed"),
    *(f"tests/projects/{path.parent.name}" for path in sorted(ROOT.glob("tests/projects/*/ops"))),
]


def copy_of(project: str, folder: Path) -> Paths:
    """Copy the operators of a project, with opmatrix's headers."""
    own = {"include", "binding"}  # opmatrix's, in native/
    for part in {"ops", "native", "third_party"} & {path.name for path in (ROOT / project).iterdir()}:
        shutil.copytree(ROOT / project / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", *own))
    for part in own:
        shutil.copytree(ROOT / "native" / part, folder / "native" / part)
    (folder / "dodo.py").touch()
    shutil.copy(ROOT / "pyproject.toml", folder)
    layout = Paths(folder)
    headers.run(layout)
    return layout


@dataclass(frozen=True, kw_only=True)
class Generated:
    """Copies of all projects with their generated code; of two operators of one name the first."""

    layouts: Sequence[Paths]
    torch: Sequence[Path]
    ort: Sequence[Path]
    kernels: Sequence[Path]

    def problems(self, files: Sequence[Path], command: Sequence[str], folder: Path) -> str:
        """Return what a compiler says of files that it reads as one, with all templates; "" if that is nothing."""
        program = folder / "all.cc"
        program.write_text("".join(f'#include "{path}"\n' for path in files))
        first = self.layouts[0]
        places = [first.include, first.binding, *(layout.native for layout in self.layouts)]
        flags = ["-fsyntax-only", *(f"-I{place}" for place in places), str(program)]
        done = subprocess.run([*command, *flags], capture_output=True, text=True)
        assert done.returncode != 0 or not done.stderr, done.stderr
        return done.stderr

    def without_warnings(self, compiler: str) -> list[str]:
        """Return the command that compiles generated code in a project."""
        return [compiler, *ninja_file._LANGUAGE, *ninja_file._WARNINGS]

    def over_torchs_headers(self, compiler: str, include: Path, standard: str) -> list[str]:
        """Return the command that compiles bindings over the headers of a torch, whose warnings are not ours."""
        places = (f"-I{self.layouts[0].binding / 'classic'}", f"-isystem{include}")
        return [compiler, "-w", f"-std={standard}", *places, f"-isystem{include / 'torch/csrc/api/include'}"]


def generate(folder: Path) -> Generated:
    """Write the bindings of all operators."""
    layouts, names = [], set()
    torch, ort, kernels = [], [], []
    for number, project in enumerate(one for one in PROJECTS if one != OWN_FILES):
        layout = copy_of(project, folder / str(number))
        layouts.append(layout)
        for name in operator_names(layout):
            operator = load_operator(layout, name)
            if name in names:
                continue
            names.add(name)
            codegen.run(layout, operator)
            generated, written = layout.generated(name), operator.handwritten_files
            if has_torch_library(operator.spec) and OWN_TORCH not in written:
                torch.append(generated / "torch.cc")
            if has_kernel(operator.spec) and OWN_ORT not in written:
                ort.append(generated / "ort.cc")
            if (kernel := generated / "kernel.cc").is_file():
                kernels.append(kernel)
    return Generated(layouts=layouts, torch=torch, ort=ort, kernels=kernels)
