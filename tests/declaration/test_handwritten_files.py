"""Operators with handwritten C++ files: what is checked, generated and compiled, and which files are in their keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.basics.errors import CompileError, SpecError
from opmatrix.codegen import bindings, generated_files, python_modules
from opmatrix.declaration.load import load_operator, load_operators
from opmatrix.declaration.validation import handwritten_files
from opmatrix.plan.steps import Plan, steps
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import Versions
from opmatrix.spec import Headers, OpSpec, Override, TorchOp
from opmatrix.toolchain import headers
from opmatrix.toolchain.headers import TorchBuild
from opmatrix.toolchain.ninja_file import build_ninja, places_ninja
from tests.support.projects import replace_in, write_files
from tests.support.toolchain import TOOLCHAIN

EXISTING = Paths(Path(__file__).parents[1] / "projects/existing")
OPERATORS = {o.name: o for o in load_operators(EXISTING)}
PLAN = Plan(
    paths=EXISTING,
    operators=[*OPERATORS.values()],
    cells=[Cell(torch="2.13", exporter="dynamo", opset=18, ort="1.31")],
    versions=Versions(torch="2.13.0", onnx="1", onnxscript="1", onnxruntime="1.31.0", numpy="1", hypothesis="1"),
    toolchain=TOOLCHAIN,
    environ={},
)


def test_handwritten_files_in_native_are_found() -> None:
    assert {name: set(o.handwritten_files) for name, o in OPERATORS.items()} == {
        "seed_norm": {"torch.cc", "ort.cc"},
        "damped": {"kernel.h", "torch.cc"},
        "row_sums": {"kernel.h", "ort.cc"},
    }


# Check.


def spec(**fields: object) -> OpSpec:
    return replace(OPERATORS["damped"].spec, **fields)  # type: ignore[arg-type]  # any of its fields


@pytest.mark.parametrize(
    ("declared", "files", "expected"),
    [
        (spec(), {"kernel.h"}, []),
        (spec(), {"torch.cc", "ort.cc"}, []),
        (spec(kernel="// inline"), set(), []),
        (spec(), set(), [("kernel.h", "missing; the generated binding of torch and ONNX Runtime calls it. Write it, or "
                          "add torch.cc and ort.cc of your own as well")]),
        (spec(), {"torch.cc"}, [("kernel.h", "missing; the generated binding of ONNX Runtime calls it. Write it, or "
                                 "add ort.cc of your own as well")]),
        (spec(torch=None), {"ort.cc"}, []),
        (spec(cpu_levels=True), {"torch.cc", "ort.cc"}, [("kernel.h", "missing; cpu_levels=True in spec.py compiles it "
         "for each level of the processor. Write it, or remove cpu_levels")]),
        (spec(torch=None), {"kernel.h", "torch.cc"}, [("torch.cc", "nothing compiles it: as ops/damped/spec.py "
         "declares the operator, no generated library gives it to torch. Remove this file, or change the "
         "declaration")]),
        (spec(torch=TorchOp(name="aten::relu", overrides=(Override(name="aten::relu"),)), runtime="contrib"),
         {"torch.cc", "ort.cc"}, [("torch.cc", "nothing compiles it"), ("ort.cc", "gives it to ONNX Runtime")]),
    ],
)  # fmt: skip
def test_files_that_do_not_fit(declared: OpSpec, files: set[str], expected: list[tuple[str, str]]) -> None:
    found = list(handwritten_files(declared, files))
    assert [m.field for m in found] == [field for field, _ in expected]
    assert all(text in m.text for m, (_, text) in zip(found, expected, strict=True)), found


def copy(name: str, folder: Path) -> Paths:
    files = (f"ops/{name}/spec.py", f"ops/{name}/cases.py")
    write_files(folder, {file: (EXISTING.root / file).read_text() for file in files})
    return Paths(folder)


def test_a_missing_kernel_and_headers_outside_the_project(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^native/damped/kernel\.h: missing; the generated binding of torch and ONNX"):
        load_operator(copy("damped", tmp_path), "damped")
    paths = copy("row_sums", tmp_path)
    replace_in(paths.spec("row_sums"), 'folder="third_party"', 'folder="/usr/include/eigen3"')
    with pytest.raises(SpecError, match=r"\[0\]\.folder: found '/usr/include/eigen3', allowed: a folder relative"):
        load_operator(paths, "row_sums")


def test_a_handwritten_binding_is_in_no_shared_library(tmp_path: Path) -> None:
    paths = copy("row_sums", tmp_path)
    write_files(tmp_path / "native/row_sums", {"kernel.h": "", "ort.cc": ""})
    copy("damped", tmp_path)
    replace_in(paths.spec("damped"), "brought::damped", "brought::other")
    replace_in(paths.spec("damped"), "    tolerances", '    uses=("row_sums",),\n    tolerances')
    with pytest.raises(SpecError, match=r"ops/damped/spec\.py: uses: 'row_sums' has an ort\.cc of its own, so that no"):
        load_operators(paths)


# Glue.


def test_only_missing_files_are_generated() -> None:
    """Only handwritten bindings of torch can be made opaque."""
    found = {name: set(bindings.render(o.spec, o.handwritten_files)) for name, o in OPERATORS.items()}
    kernel = {"kernel.cc", "checks.h"}
    assert found == {
        "seed_norm": set(),
        "damped": kernel | {"compute.h", "damped.h", "ort.cc", "ort_library.cc"},
        "row_sums": kernel | {"compute.h", "row_sums.h", "torch.cc"},
    }
    assert found == {name: set(generated_files.cpp_files(o.spec, o.handwritten_files)) for name, o in OPERATORS.items()}
    fakes = {name: python_modules.render(o.spec, o.handwritten_files)["fake.py"] for name, o in OPERATORS.items()}
    assert {name for name, text in fakes.items() if "make_opaque()" in text} == {"seed_norm", "damped"}


# Compile.


def ninja(name: str) -> str:
    operator = OPERATORS[name]
    text = build_ninja(EXISTING, operator.spec, toolchain=TOOLCHAIN, written=operator.handwritten_files)
    return text.replace(" $\n    ", " ")


@pytest.mark.parametrize(
    ("name", "built"),
    [
        ("seed_norm", "torch.o ort.o libseed_norm_torch.so libseed_norm_ort.so"),
        ("damped", "kernel.o ort.o ort_library.o runtime.o torch.o libdamped_torch.so libdamped_ort.so"),
        ("row_sums", "kernel.o torch.o runtime.o ort.o stub/libtorch_cpu.so librow_sums_torch.so librow_sums_ort.so"),
    ],
)
def test_what_is_built(name: str, built: str) -> None:
    lines = [line for line in ninja(name).splitlines() if line.startswith("build ")]
    assert [line.split()[1].rstrip(":") for line in lines] == built.split()


def test_warnings_of_third_party_headers_are_no_errors() -> None:
    text = ninja("damped")
    own, ours = (next(line for line in text.splitlines() if line.startswith(f"{v} = ")) for v in ("own", "flags"))
    assert "-Wno-error" in own and "-Werror" in ours
    assert text.count("more = $own") == 1  # the kernel and the generated binding keep opmatrix's flags


def test_the_ninja_file_has_no_path_of_third_party_headers() -> None:
    """So an environment in another place compiles nothing again."""
    assert "/env" not in ninja("seed_norm") and "$headers" in ninja("seed_norm")
    torch = TorchBuild(version="2.6.0", include=Path("/env/torch/include"), openmp=None, cxx11_abi=False)
    places = places_ninja(EXISTING, TOOLCHAIN, Path("/ort"), torch=torch, headers=[Path("/env/a b")])
    assert "torch = -D_GLIBCXX_USE_CXX11_ABI=0 -isystem /env/torch/include " in places
    assert "-ffile-prefix-map=/env/torch/include=torch/include " in places
    assert "torch_libraries = /env/torch/lib/libtorch_cpu.so /env/torch/lib/libc10.so\n" in places
    assert "headers = -isystem '/env/a b' '-ffile-prefix-map=/env/a b=env/a b'\n" in places


def test_a_distribution_without_headers() -> None:
    declared = spec(headers=(Headers(folder="include", distribution="pytest"),))
    with pytest.raises(CompileError, match=r"installs no folder 'include'\. It has headers in: none that is called"):
        headers.find(declared, Path("/"))
    assert headers.versions(declared) == [f"pytest {pytest.__version__}"]


# Keys of steps.


def configs(plan: Plan) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {step.task: (step.config, step.reads) for step in steps(plan)}


def test_torch_and_a_package_are_in_the_keys_of_files_that_include_them(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (configs(replace(PLAN, versions=replace(PLAN.versions, torch=v))) for v in ("2.13.0", "2.13.1"))
    compiled = {task for task in before if task.startswith("compile") and before[task] != after[task]}
    assert compiled == {"compile:seed_norm", "compile:damped"}
    before = configs(PLAN)
    monkeypatch.setattr(headers, "versions", lambda spec: ["eigen 4"] if spec.name == "seed_norm" else [])
    changed = {task for task, key in configs(PLAN).items() if key != before[task]}
    assert changed == {"compile:seed_norm", "sanitize:seed_norm"}


COMPILED_OF_ROWS = {"compile:row_sums", "sanitize:row_sums"}


@pytest.mark.parametrize(
    ("path", "tasks"),
    [
        (EXISTING.handwritten("row_sums", "ort.cc"), COMPILED_OF_ROWS),
        (EXISTING.root / "third_party/total.h", COMPILED_OF_ROWS),
        (EXISTING.generated("row_sums") / "torch.cc", COMPILED_OF_ROWS),
        (EXISTING.handwritten("damped", "torch.cc"), {"compile:damped", "sanitize:damped"}),
        (EXISTING.torch_library("damped"), {"compat:damped@torch2.13"}
         | {f"register:damped-{part}@torch2.13" for part in ("schema", "nodes", "kernel", "search")}),
        (EXISTING.objects("row_sums", "torch")[0],
         {f"register:row_sums-{part}@torch2.13" for part in ("schema", "nodes")}),
    ],
)  # fmt: skip
def test_steps_that_read_a_file(path: Path, tasks: set[str]) -> None:
    assert {step.task for step in steps(PLAN) if str(path) in step.reads} == tasks


def test_no_step_writes_an_object_that_is_not_compiled() -> None:
    wrote = {step.task: {Path(p).name for p in step.writes} - {"compiled.json"} for step in steps(PLAN)}  # the digests
    assert wrote["compile:seed_norm"] == {"libseed_norm_torch.so", "libseed_norm_ort.so", "torch.txt"}
    made = {"libdamped_torch.so", "libdamped_ort.so", "torch.txt", "kernel.o", "ort.o", "runtime.o"}
    assert wrote["compile:damped"] == made


def test_another_torch_has_its_own_library_with_the_same_kernel() -> None:
    """A handwritten binding fits only one version of torch, for which it is compiled."""
    plan = replace(PLAN, cells=[Cell.parse(f"torch{t}-legacy-opset17-ort1.31") for t in ("1.13", "2.15")])
    planned = {step.task: step for step in steps(plan)}
    for torch in ("1.13", "2.15"):
        made = planned[f"compile:damped@torch{torch}"]
        assert {Path(p).parent.name for p in made.writes} == {f"torch{torch}"}
        assert {Path(p).name for p in made.writes} == {"libdamped_torch.so", "torch.txt"}
        assert str(EXISTING.compile_folder("damped") / "kernel.o") in made.reads
        for part in ("kernel", "schema"):
            assert {*made.writes} <= {*planned[f"register:damped-{part}@torch{torch}"].reads}


def test_a_new_handwritten_file_changes_the_plan() -> None:
    """A handwritten binding in place of a generated one runs codegen and compile again."""
    operator = OPERATORS["row_sums"]
    taken = replace(operator, handwritten_files=operator.handwritten_files | {"torch.cc"})
    before, after = (configs(replace(PLAN, operators=[one])) for one in (operator, taken))
    assert {t.partition("@")[0] for t in before if before[t] != after[t]} == {
        "codegen:row_sums", "compile:row_sums", "register:row_sums-schema", "register:row_sums-nodes",
        "register:row_sums-kernel", "register:row_sums-search", "compat:row_sums", "sanitize:row_sums",
    }  # fmt: skip
