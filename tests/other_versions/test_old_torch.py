"""Torch without the stable ABI: its own library, over torch's C++ headers, has the same messages and results.

The calls and their messages are those of tests/codegen/test_invalid_calls_torch.py and test_invalid_calls_kinds.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from opmatrix.data import write_data
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.search import draw_inputs
from opmatrix.toolchain import compile
from opmatrix.toolchain.symbols import LEVEL, read_symbols
from tests.codegen import test_invalid_calls_kinds as kinds
from tests.codegen import test_invalid_calls_torch as plain
from tests.other_versions.conftest import Needs
from tests.other_versions.environments import OLD, Environment, environment
from tests.support.building import build, copy_project

pytestmark = [pytest.mark.matrix, pytest.mark.compile]

# How many threads a call adds to those that torch has started, and how many OpenMP libraries are loaded.
THREADS_USED = """
import os, sys, torch
torch.ops.load_library(sys.argv[1])
torch.set_num_threads(3)
x, one = torch.randn(8, 64, 56, 56), torch.ones(64)
torch.exp(torch.randn(10**7))  # its own operators start them
before = len(os.listdir("/proc/self/task"))
torch.ops.mynamespace.custom_group_norm(x, torch.tensor([32.0]), one, one)
maps = open("/proc/self/maps").read().split()
print(len(os.listdir("/proc/self/task")) - before, len({path for path in maps if "libgomp" in path}))
"""
NAMES = ("group_norm", "dual_residual", "nms")


@pytest.fixture(scope="module", params=OLD)
def old(request: pytest.FixtureRequest, needs: Needs) -> Environment:
    needs(f"torch{request.param}")
    return environment(request.param)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """The operators with a torch library, compiled for the main environment, with their data."""
    paths = copy_project(tmp_path_factory.mktemp("old"), *NAMES)
    for name in NAMES:
        operator = build(paths, name)
        write_data.run(paths, operator)
        draw_inputs.run(paths, operator)
    return paths


@pytest.fixture(scope="module")
def paths(project: Paths, old: Environment) -> Paths:
    """The same project, with the libraries for one old torch as well."""
    for name in NAMES:
        compile.run(project, load_operator(project, name), torch=old.folder)
    return project


def library(paths: Paths, old: Environment, name: str) -> str:
    return str(paths.torch_library(name, torch=old.torch))


def test_the_library_exports_one_function_and_links_the_same_kernel(paths: Paths, old: Environment) -> None:
    folder = paths.compile_folder("group_norm", torch=old.torch)
    found = read_symbols(folder / "libgroup_norm_torch.so")
    assert found.defined == {"opmatrix_error", LEVEL}
    assert {"libtorch_cpu.so", "libc10.so"} <= {*found.needed}
    assert not [*folder.glob("kernel.o")]


def test_the_library_for_newer_torches_names_them(paths: Paths, old: Environment) -> None:
    """A program that loads it directly gets the message; no stage and no wheel would load it."""
    for name, spelled in (("group_norm", "mynamespace::custom_group_norm"), ("nms", "opmatrix::nms")):
        code = f"import torch; torch.ops.load_library({str(paths.torch_library(name))!r}); print('loaded')"
        done = old.run("-c", code)
        assert (done.returncode, done.stdout) == (0, "loaded\n"), done.stderr
        assert f"opmatrix: {spelled}: needs torch 2.9 or newer\n" in done.stderr


def torchs_own(old: Environment, calls: Iterable[str]) -> list[str]:
    """Return the calls that torch refuses before it calls the binding: 1.13 also uses a kernel on the device Meta."""
    return [call for call in calls if "'meta'" in call] if old.torch == "1.13" else []


def allowed(old: Environment, calls: Iterable[str]) -> list[str]:
    """Return the calls that this torch serves: those before 2.6 make empty tensors whose strides overflow."""
    return [call for call in calls if "2**40" in call] if old.torch in ("1.13", "2.0") else []


def test_group_norm_has_the_same_messages(paths: Paths, old: Environment) -> None:
    calls = [*plain.CALLS, *plain.REFUSED]
    done = old.run("-c", plain.PROGRAM, library(paths, old, "group_norm"), json.dumps(calls))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    expected = {call: text for call, text in plain.CALLS.items() if call not in torchs_own(old, calls)}
    assert {call: said.get(call) for call in expected} == expected
    assert all("from the 'AutogradMeta' backend" in said[call] for call in torchs_own(old, calls))
    assert all(said.get(call) for call in plain.REFUSED)


@pytest.mark.parametrize("name", kinds.TORCH)
def test_other_operators_have_the_same_messages(name: str, paths: Paths, old: Environment) -> None:
    spec = load_operator(paths, name).spec
    assert spec.torch is not None
    calls = {call: text for call, text in kinds.TORCH[name].items() if call not in allowed(old, kinds.TORCH[name])}
    done = old.run(
        "-c", kinds.TORCH_PROGRAM, library(paths, old, name), spec.torch.name, kinds.RIGHT_TORCH[name],
        json.dumps([*calls]),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    expected = {call: text for call, text in calls.items() if text and call not in torchs_own(old, calls)}
    assert {call: said.get(call) for call in expected} == expected
    assert all(said.get(call) for call in calls)


def test_a_second_definition_is_a_message(paths: Paths, old: Environment, tmp_path: Path) -> None:
    path = library(paths, old, "group_norm")
    copy = tmp_path / Path(path).name
    copy.write_bytes(Path(path).read_bytes())
    done = old.run("-c", plain.TWICE, path, str(copy))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "[]" and "custom_group_norm: torch could not define it; is another library with" in second
    assert "opmatrix: mynamespace::custom_group_norm: torch could not define it" in done.stderr


def test_threads_change_nothing(paths: Paths, old: Environment) -> None:
    done = old.run("-c", plain.THREADS, library(paths, old, "group_norm"))
    assert done.returncode == 0, done.stderr


def test_a_kernel_runs_on_torchs_own_threads(paths: Paths, old: Environment) -> None:
    """A second OpenMP in the process would have its own pool of threads."""
    done = old.run("-c", THREADS_USED, library(paths, old, "group_norm"))
    assert (done.returncode, done.stdout) == (0, "0 1\n"), done.stderr


@pytest.mark.parametrize("part", ["schema", "kernel", "search", "nodes", "gradient"])
def test_register(part: str, paths: Paths, old: Environment) -> None:
    done = old.stage(paths.root, "register", "group_norm", "--part", part)
    assert done.returncode == 0, done.stderr
    manifest = json.loads(paths.register_manifest("group_norm", part, torch=old.torch).read_text())
    skipped = {r["skipped"] for r in manifest["results"] if "skipped" in r}
    lacks = {"schema": "2.4", "gradient": "2.4", "nodes": "2.6"}.get(part)
    expected = {f"skipped: needs torch {lacks}"} if lacks and old.torch in ("1.13", "2.0") else set()
    assert skipped == expected
    assert any("skipped" not in r for r in manifest["results"]) or part == "gradient"


def test_a_library_for_another_torch_is_reported(paths: Paths, old: Environment) -> None:
    """It may load without its kernel, or end the process."""
    written = paths.torch_version("group_norm", torch=old.torch)
    before = written.read_text()
    try:
        written.write_text("2.5.1+cpu with the new C++ ABI\n")
        done = old.stage(paths.root, "register", "group_norm", "--part", "kernel")
    finally:
        written.write_text(before)
    assert done.returncode == 8
    assert f"is compiled for torch 2.5.1+cpu with the new C++ ABI, and this is {old.torch}." in done.stderr
    assert f"python -m opmatrix compile group_norm --torch-root {old.folder}" in done.stderr


def test_all_torches_write_the_same_nodes(paths: Paths, old: Environment) -> None:
    """In the cells of the installed exporters, compared with the main environment."""
    from opmatrix.export import compare_exports
    from opmatrix.project.cells import Cell

    named = {"1.13": ["legacy-opset17"], "2.0": ["legacy-opset18"], "2.6": ["legacy-opset18", "dynamo-opset18"]}
    cells = [Cell.parse(f"torch{old.torch}-{name}-ort1.31") for name in named[old.torch]]
    main = Cell.parse("torch2.13-dynamo-opset20-ort1.31")
    for name in NAMES:
        for cell in cells:
            done = old.stage(paths.root, "export", name, "--cell", str(cell))
            assert done.returncode == 0, done.stderr
        subprocess.run(
            [sys.executable, "-m", "opmatrix", "export", name, "--cell", str(main)], cwd=paths.root, check=True
        )
        compare_exports.run(paths, load_operator(paths, name), lowering="custom", cells=[*cells, main])
