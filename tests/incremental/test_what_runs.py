"""The steps that run after a change: every row of the table in docs/architecture.md, and some more."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.incremental.real import CASES, KERNEL, RealProject, expand, package
from tests.support.projects import edited

pytestmark = [pytest.mark.incremental, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

OP = "ops/group_norm"
# Up to the relative tolerance of float64 of each lowering.
CUSTOM, DECOMPOSED = (
    f'"{name}": {{\n            "float32": Tolerance(rtol=2.5e-7, atol=1e-7),\n            "float64": Tolerance(rtol='
    for name in ("custom", "decomposed")
)
TEMPLATES = "pipeline/opmatrix/codegen/templates"
ROWS: dict[str, tuple[Callable[[RealProject], object], str]] = {
    "nothing": (lambda p: None, ""),
    "README": (lambda p: p.append(f"{OP}/README.md", "More.\n") if (p.root / OP / "README.md").exists() else None, ""),
    "publish": (lambda p: shutil.rmtree(p.root / OP / "published"), "verify custom, report"),
    "kernel, a comment": (lambda p: p.append(KERNEL, "// more\n"), "compile"),
    "kernel": (
        lambda p: p.replace(KERNEL, "#pragma once\n", "#pragma once\ninline const volatile int planted = 1;\n"),
        "compile, register kernel, register search, verify custom, report",
    ),
    "header for kernels, a comment": (lambda p: p.append("native/include/opmatrix/check.h", "// more\n"), "compile"),
    "header for bindings, a comment": (lambda p: p.append("native/binding/stable/torch.h", "// more\n"), "compile"),
    "template of a binding, a comment": (
        lambda p: p.append(f"{TEMPLATES}/torch.cc.j2", "// more\n"),
        "codegen, compile",
    ),
    "a flag": (
        lambda p: p.replace("pipeline/opmatrix/toolchain/ninja_file.py", '_BINDING = ("-O1"', '_BINDING = ("-O2"'),
        "compile, register schema, register nodes, register kernel, register search, verify custom, report",
    ),
    "formula of a gradient": (
        lambda p: p.replace(f"{OP}/torch_op.py", "rate = torch.rsqrt(", "rate = 1.0 * torch.rsqrt("),
        "register schema, register nodes, register gradient",
    ),
    "tolerance of custom": (
        lambda p: p.replace(f"{OP}/spec.py", f"{CUSTOM}1e-13", f"{CUSTOM}2e-13"),
        "cases, register kernel, register search, verify custom, report",
    ),
    "tolerance of decomposed": (
        lambda p: p.replace(f"{OP}/spec.py", f"{DECOMPOSED}1e-13", f"{DECOMPOSED}2e-13"),
        "cases, verify decomposed, report",
    ),
    "summary in the declaration": (
        lambda p: p.replace(f"{OP}/spec.py", 'summary="Normalize', 'summary="To normalize'),
        "codegen, register schema, register nodes, export custom, export decomposed",
    ),
    "a further case in a model": (
        lambda p: p.replace(
            CASES,
            'Case(name=f"flat_prime_{dtype}"',
            'Case(name=f"flat_more_{dtype}", inputs=inputs(3, 12, groups=2)),\n            '
            'Case(name=f"flat_prime_{dtype}"',
        ),
        "data, cases, draw inputs, register kernel, register search, register gradient, verify custom, "
        "verify decomposed, report",
    ),
    "a new model": (
        lambda p: p.replace(CASES, 'flat("float64"))', 'flat("float32"), flat("float64"))'),
        "data, cases, draw inputs, register kernel, register search, register gradient, export custom, "
        "export decomposed, export custom agreement, export decomposed agreement, verify custom, verify decomposed, "
        "report",
    ),
    "reference, its words": (
        lambda p: p.append(f"{OP}/reference.py", "# more\n"),
        "data, cases, draw inputs, register search, register gradient, verify custom, verify decomposed",
    ),
    "reference, its numbers": (
        lambda p: p.replace(f"{OP}/reference.py", "return y\n", "return y * y.dtype.type(1 + 1e-15)\n"),
        "data, cases, draw inputs, register kernel, register search, register gradient, verify custom, "
        "verify decomposed, report",
    ),
    "lowering, its words": (lambda p: p.append(f"{OP}/lowering.py", "# more\n"), ""),
    "lowering": (
        lambda p: p.replace(
            f"{OP}/lowering.py",
            '    variance = mean(g.op("Mul", centred, centred))',
            '    centred = g.op("Sub", centred, mean(centred))\n    variance = mean(g.op("Mul", centred, centred))',
        ),
        "export decomposed, export decomposed agreement, verify decomposed, report",
    ),
    "code of a stage": (
        lambda p: p.append("pipeline/opmatrix/ort_checks/verify.py", "# more\n"),
        "verify custom, verify decomposed",
    ),
}


@pytest.mark.parametrize("change", ROWS)
def test_steps_that_run_after_a_change(real: RealProject, change: str) -> None:
    assert real.run().returncode == 0
    edit, expected = ROWS[change]
    drawn = real.root / "build/draw/group_norm/drawn.cases"
    before = drawn.read_bytes()
    edit(real)
    said = real.would_run()
    done = real.run()
    assert done.returncode == 0, done.stdout + done.stderr
    # Drawn again on a busy machine, fewer or more of the large inputs are computed in the time that they have.
    of_others = {"report"} if drawn.read_bytes() != before else set()
    assert real.ran(done) | of_others == expand(expected) | of_others
    assert said <= expand(expected)


def test_cells_that_no_longer_exist_leave_the_report(real: RealProject) -> None:
    """Their verdicts have the current code, library and declaration, but no run can choose them again."""
    assert real.doit("opsets=17").returncode == 0
    assert real.run().returncode == 0
    assert {"17", "18"} == opsets(real)
    with edited(real.root / OP / "spec.py", "    lowerings=(", "    min_opset=18,\n    lowerings=("):
        assert real.ran(real.run()) == {"report"}
    assert {"18"} == opsets(real)
    gone = json.loads(real.paths.report_data.read_text())["changes"]["gone"]
    assert {entry["name"].partition("-opset")[2] for entry in gone} == {"17-ort1.31"}


def opsets(project: RealProject) -> set[str]:
    """Return the opsets in the report."""
    return {name.partition("-opset")[2].partition("-")[0] for name in project.records()}


VERSIONS = {
    "torch": "register schema, register nodes, register kernel, register search, register gradient, "
    "export custom, export decomposed",
    "onnx": "data, cases, register schema, register nodes, export custom, export decomposed, verify custom, "
    "verify decomposed",
    "onnxscript": "register nodes, export custom, export decomposed",
    "onnxruntime": "verify custom, verify decomposed",
    "numpy": "data, cases, draw inputs, register kernel, register search, register gradient, verify custom, "
    "verify decomposed",
    "hypothesis": "draw inputs, register search",
}


@pytest.mark.parametrize("name", VERSIONS)
def test_steps_that_would_run_for_another_version(real: RealProject, tmp_path: Path, name: str) -> None:
    """Only `doit why` runs: the version is planted. Only its patch level differs, so the cells stay."""
    assert real.run().returncode == 0
    other = f"{version(name).partition('+')[0]}.1"
    environment = dict(package(tmp_path, name, other))
    assert real.would_run(**environment) == expand(VERSIONS[name])
    assert f"{name} {version(name)} -> {other}" in real.run("why", **environment).stdout


@pytest.mark.parametrize("target", [None, "../nothing"], ids=["is gone", "points elsewhere"])
def test_a_link_to_a_data_set_is_made_again(target: str | None, real: RealProject) -> None:
    assert real.run().returncode == 0
    (link, *_) = sorted((real.root / "build/export").rglob("test_data_set_0"))
    right = link.readlink()
    link.unlink()
    if target:
        link.symlink_to(target)
    done = real.run()
    assert real.ran(done) == {"verify custom dynamo"}
    assert link.readlink() == right
    assert "is of an earlier run" not in done.stdout, "the report is up to date"


def test_another_compiler_with_equal_libraries(real: RealProject, tmp_path: Path) -> None:
    assert real.run().returncode == 0
    compiler = tmp_path / "other-g++"
    compiler.write_text('#!/bin/sh\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    output = real.run("why", CXX=str(compiler)).stdout
    assert re.search(r"compile:group_norm: compiler g\+\+ \w{16} -> other-g\+\+ \w{16}\n", output), output
    assert real.ran(real.run(CXX=str(compiler))) == {"compile"}
    compiler.write_text('#!/bin/sh\n# upgraded in place\nexec g++ "$@"\n')
    assert real.ran(real.run(CXX=str(compiler))) == {"compile"}
