"""Compile parts of native/ for tests: an operator's libraries by the pipeline's own stages, small programs by g++."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opmatrix.codegen import write_code
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.project.paths import Paths
from opmatrix.toolchain import compile
from opmatrix.toolchain.find import find_toolchain
from tests.support.forked import forked
from tests.support.projects import ROOT, Project, compiled_once, with_reference


def with_native(root: Path, name: str, reference: str) -> Paths:
    """Make a project with the reference of one operator and native/."""
    paths = with_reference(root, name, reference)
    shutil.copytree(ROOT / "native", paths.native)
    return paths


def copy_project(folder: Path, *names: str) -> Paths:
    """Copy the handwritten files of the operators `names`, or of group_norm alone, to `folder`."""
    for part in (*(f"ops/{name}" for name in names or ("group_norm",)), "native"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    compiled_once(folder)
    (folder / "dodo.py").touch()
    shutil.copy(ROOT / "pyproject.toml", folder)
    return Paths(folder)


def build(paths: Paths, name: str = "group_norm", *, debug: bool = False) -> Operator:
    """Run the stages up to compile for one operator."""
    operator = load_operator(paths, name)
    write_code.run(paths, operator)
    compile.run(paths, operator, debug=debug)
    return operator


def compile_program(source: str, folder: Path, *flags: str) -> Path:
    """Compile one C++ file against native/, with all warnings as errors; return the program."""
    path = folder / "program.cc"
    path.write_text(source)
    program = folder / "program"
    command = [
        *find_toolchain(os.environ).compiler, "-std=c++20", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror",
        "-Wno-psabi", f"-I{ROOT / 'native/include'}", f"-I{ROOT / 'native'}", f"-I{ROOT / 'native/binding'}",
        f"-I{ROOT / 'native/binding/stable'}",
        str(path), str(ROOT / "native/binding/runtime.cc"), "-o", str(program), *flags,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


def registered(project: Project, *operators: str) -> list[Any]:
    """Load operators with all that a wheel registers; return those of the libraries."""
    from opmatrix.export.generated_modules import load_generated
    from opmatrix.torch_ops import load
    from opmatrix.torch_ops.call import torch_qualified

    found = []
    for name in operators:
        operator = load_operator(project.paths, name)
        found.append(load.load(project.paths, operator).overload)
        load_generated(project.paths, name).fake.register_fake()
        if gradient := load.gradient(project.paths, operator.spec):
            gradient.register(torch_qualified(operator.spec))
    return found


def classic_kernel(project: Project, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile an operator over the C++ headers of the installed torch, and compare its kernel with the reference."""
    monkeypatch.setattr(compile, "is_classic", lambda spec, torch: True)
    compile.run(project.paths, load_operator(project.paths, name), torch=Path(sys.prefix))

    def kernel() -> None:
        from opmatrix.project.settings import installed
        from opmatrix.torch_checks import register as stage
        from opmatrix.torch_ops import load

        load.is_classic = lambda spec, torch: True
        assert installed().torch
        assert stage._kernel(project.paths, load_operator(project.paths, name))

    assert forked(kernel, project.root / "output") == ""
