"""The binding over torch's C++ headers, compiled for the installed torch: it reports what the stable binding does.

No operator needs it in this environment; test_old_torch.py tests it in those that do.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.basics.errors import CompileError
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.toolchain import compile, symbols
from tests.codegen import test_invalid_calls_kinds as kinds
from tests.codegen import test_invalid_calls_torch as plain
from tests.support.building import build, copy_project

pytestmark = [pytest.mark.compile, pytest.mark.torch]

NAMES = ("group_norm", "dual_residual", "nms")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    paths = copy_project(tmp_path_factory.mktemp("classic"), *NAMES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile, "is_classic", lambda spec, torch: True)
        for name in NAMES:
            build(paths, name)
            compile.run(paths, load_operator(paths, name), torch=Path(sys.prefix))
    return paths


@pytest.fixture(scope="module")
def minor() -> str:
    from opmatrix.torch_ops.call import torch_minor

    return torch_minor()


def run(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_group_norm_has_the_same_messages(paths: Paths, minor: str) -> None:
    library = paths.torch_library("group_norm", torch=minor)
    said = json.loads(run(plain.PROGRAM, str(library), json.dumps([*plain.CALLS, *plain.REFUSED])))
    assert {call: said.get(call) for call in plain.CALLS} == plain.CALLS
    assert all(said.get(call) for call in plain.REFUSED)


@pytest.mark.parametrize("name", kinds.TORCH)
def test_other_operators_have_the_same_messages(name: str, paths: Paths, minor: str) -> None:
    spec, calls = load_operator(paths, name).spec, kinds.TORCH[name]
    assert spec.torch is not None
    library = paths.torch_library(name, torch=minor)
    printed = run(kinds.TORCH_PROGRAM, str(library), spec.torch.name, kinds.RIGHT_TORCH[name], json.dumps([*calls]))
    said = json.loads(printed)
    assert {call: said.get(call) for call, text in calls.items() if text} == {c: t for c, t in calls.items() if t}


def test_a_second_definition_is_a_message(paths: Paths, minor: str, tmp_path: Path) -> None:
    """Also after the stable library: the process must not end."""
    library = paths.torch_library("group_norm", torch=minor)
    for second in (paths.torch_library("group_norm"), shutil.copy(library, tmp_path)):
        first, said = run(plain.TWICE, str(library), str(second)).splitlines()
        assert first == "[]" and "custom_group_norm: torch could not define it" in said


def test_threads_change_nothing(paths: Paths, minor: str) -> None:
    run(plain.THREADS, str(paths.torch_library("group_norm", torch=minor)))


def test_the_library_exports_one_function(paths: Paths, minor: str) -> None:
    """The gate refuses a library that exports more."""
    symbols.check_cpp_abi_library(paths.torch_library("group_norm", torch=minor))
    with pytest.raises(CompileError, match="it may show 'opmatrix_error' alone"):
        symbols.check_cpp_abi_library(paths.ort_library("group_norm"))


def test_the_linker_names_a_symbol_that_this_torch_lacks(paths: Paths) -> None:
    header = paths.binding / "classic/torch.h"
    text = header.read_text()
    planted = "namespace at { int gone(); }\nnamespace opmatrix::torch {\ninline const int kGone = at::gone();\n"
    try:
        header.write_text(text.replace("namespace opmatrix::torch {\n", planted, 1))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compile, "is_classic", lambda spec, torch: True)
            with pytest.raises(CompileError, match=r"at::gone\(\)"):
                compile.run(paths, load_operator(paths, "group_norm"), torch=Path(sys.prefix))
    finally:
        header.write_text(text)
