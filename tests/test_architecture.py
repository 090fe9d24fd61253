"""Which rooms import which, which names modules and classes must not have, and what a kernel must not include."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from docs.site import rooms
from docs.site.imports import Package
from docs.site.imports import imports as names_imported
from opmatrix.basics import features
from opmatrix.records import code_hash
from opmatrix.records.code_hash import STAGE_MODULES
from opmatrix.toolchain import symbols

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pipeline/opmatrix"
FRAMEWORKS = {"torch", "onnx", "onnxscript", "onnx_ir", "onnxruntime", "numpy"}
CHECKS = ("check-read", "check-run", "check-compare")  # the modules of `doit check` that import ONNX Runtime
MODULES = {**STAGE_MODULES, **features.added("stages")}
STAGES = sorted(MODULES)


def imports(path: Path) -> set[str]:
    """Return the dotted names that a file imports."""
    return set(names_imported(path.read_text()))


def module_file(stage: str) -> Path:
    return PACKAGE.parent.joinpath(*MODULES[stage].split(".")).with_suffix(".py")


def modules(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py"))


def test_every_import_between_rooms_goes_down() -> None:
    files = {path.relative_to(ROOT).as_posix(): path.read_text() for path in modules(PACKAGE)}
    assert [*rooms.faults(Package.of(files))] == []
    for file, line, expected in (
        ("project/cells.py", "from opmatrix.engine import lock", "project imports engine, which is above it"),
        ("spec.py", "def f(): import opmatrix.plan.steps", "spec imports plan, which is above it"),
        ("loose.py", "X = 1", "loose has no row in ROOMS"),
    ):
        name = f"pipeline/opmatrix/{file}"
        assert expected in "\n".join(rooms.faults(Package.of(files | {name: files.get(name, "") + f"\n{line}\n"})))


# Lines of Python that each room may have: those of 2026-12 and a twentieth. A commit that needs more raises the number,
# and says what it removed or why nothing could go.
LINES = {
    "__main__": 20, "addons": 60, "addons.bench": 2_170, "addons.check": 5_570, "addons.hf_kernel": 220,
    "addons.mutate": 2_940, "addons.team": 1_360, "basics": 1_440, "bench": 170, "codegen": 1_950,
    "commands": 2_920, "data": 2_700, "declaration": 3_600, "engine": 4_770, "environments": 960,
    "export": 2_240, "judge": 1_450, "lowering": 910, "ort_checks": 3_110, "plan": 1_270, "project": 2_070,
    "records": 640, "report": 2_110, "scaffold": 2_160, "search": 2_640, "shared_cache": 1_500,
    "signature": 1_060, "sizes": 1_190, "spec": 750, "toolchain": 1_680, "torch_checks": 4_080,
    "torch_ops": 1_440, "wheel": 1_950,
}  # fmt: skip


def beyond(package: Package) -> dict[str, str]:
    """Return the rooms that have more lines than LINES allows, or no number there."""
    lines = Counter[str]()
    for name, text in package.modules.items():
        lines[package.room(name)] += text.count("\n")
    return {room: f"{lines[room]}, allowed: {LINES.get(room)}" for room in package.rooms
            if lines[room] > LINES.get(room, 0)}  # fmt: skip


def test_each_room_keeps_to_its_lines() -> None:
    package = Package.in_folder(ROOT)
    assert LINES.keys() == package.rooms
    assert beyond(package) == {}
    grown = {"opmatrix.spec": package.modules["opmatrix.spec"] + "\n" * LINES["spec"], "opmatrix.loose": "X = 1\n"}
    rooms_beyond = beyond(Package(name="opmatrix", modules={**package.modules, **grown}))
    assert rooms_beyond.keys() == {"spec", "loose"} and rooms_beyond["loose"] == "1, allowed: None"


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_imports_no_other_stage_and_no_engine(stage: str) -> None:
    found = set(imports(module_file(stage)))
    others = {n for n in found if n.startswith(("opmatrix.engine", "opmatrix.commands"))}
    others |= found & ({*MODULES.values()} - {MODULES[stage]})
    assert not others, f"{stage} imports {others}: stages speak through files"


def test_only_engine_commands_and_addons_import_doit() -> None:
    extend = tuple(PACKAGE / room for room in ("engine", "commands", "addons"))
    others = [path for path in [*modules(PACKAGE), ROOT / "dodo.py"] if not {*extend} & {*path.parents}]
    assert [str(path) for path in others if "doit" in {name.split(".")[0] for name in imports(path)}] == []


def old_imports(text: str) -> set[str]:
    return {name for name in names_imported(text) if name.split(".")[0] == "pipeline"}


def python_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.splitlines() if (path := ROOT / name).is_file()]


def test_no_module_imports_the_folder_pipeline() -> None:
    """In the checkout it would be a namespace package, and `pipeline.opmatrix.spec` a second OpSpec."""
    assert not (ROOT / "pipeline/__init__.py").exists()
    assert {p.name for p in (ROOT / "pipeline").iterdir()} - {"__pycache__"} == {"opmatrix"}
    assert {str(path): found for path in python_files() if (found := old_imports(path.read_text()))} == {}
    assert old_imports("def f():\n    from pipeline.opmatrix.spec import OpSpec\n")


def test_the_tree_has_no_symbolic_link() -> None:
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line for line in listed.splitlines() if line.startswith("120000")] == []


# Former or meaningless names of modules and classes, and why none may have them again.
NO_NAMES = {
    "aside": "step_log: a reader looks for a log",
    "base_utils": "say what it does",
    "fault": "two classes had this name: Refusal, NodeFault",
    "feeds": "model_inputs, GraphInput: ONNX Runtime says feed, ONNX says input",
    "found": "insert_into_models; it is also the commonest local name",
    "glue": "codegen: generated bindings",
    "handler": "say what it does",
    "helper": "say what it does",
    "home": "reexec: it starts a command again in another environment",
    "layout": "Paths, or MemoryLayout of a tensor: two classes had this name",
    "loaded": "two classes had this name: LoadedLibrary, LoadedOperators",
    "manager": "say what it does",
    "oracle": "ReferenceRun: it wraps onnx.reference.ReferenceEvaluator",
    "part": "OperatorPlan, or the Part of register, which is a Literal",
    "picture": "graph_json",
    "place": "VenvPaths, server_name, CellKey: four things had this name",
    "runner": "engine and commands",
    "sample": "CaseCall, or what opcheck, the gradient check and compat call in turn",
    "told": "print_findings",
    "trial": "ort_checks, ModelRunner",
    "util": "say what it does",
    "utils": "say what it does",
}


def named(path: Path) -> set[str]:
    """Return the names of a module, of its classes and of its folders, in lower case."""
    classes = {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)}
    return {name.lower() for name in {path.stem, *path.relative_to(PACKAGE).parts[:-1], *classes}}


def test_no_module_or_class_has_a_forbidden_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {str(path): names for path in modules(PACKAGE) if (names := named(path) & NO_NAMES.keys())}
    assert found == {}, [NO_NAMES[name] for names in found.values() for name in names]
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    planted = tmp_path / "trial" / "paths.py"
    planted.parent.mkdir()
    planted.write_text("class Layout: ...\n")
    assert named(planted) & NO_NAMES.keys() == {"trial", "layout"}


def test_verify_never_imports_torch_or_hypothesis() -> None:
    """Environments of ONNX Runtime alone have neither."""
    reached = [p for stage in ("verify", "data", "report", *CHECKS) for p in code_hash.modules(stage)]
    assert not [p for p in reached if {"torch", "hypothesis"} & {n.split(".")[0] for n in imports(p)}]


@pytest.mark.parametrize("command", [["list"], ["list", "--all"], ["list", "--status"]], ids=" ".join)
def test_building_the_graph_imports_no_framework(command: list[str]) -> None:
    """doit reads dodo.py on every command, so every command would pay for an import there."""
    script = (
        "import sys; from opmatrix.commands.main import Program;"
        f"code = Program().run({command!r});"
        f"heavy = {sorted(FRAMEWORKS | {'elftools', 'jinja2', 'rich'})};"
        "found = [m for m in heavy if m in sys.modules];"
        "sys.exit(str(found) if found else code)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def framework_includes(text: str) -> list[str]:
    return re.findall(r'#\s*include\s*[<"]((?:torch|ATen|c10|caffe2|onnx)[^">]*)', text)


def test_no_framework_header_in_kernels() -> None:
    paths = sorted([*(ROOT / "native/include").rglob("*.h"), *(ROOT / "native").glob("*/kernel.h")])
    for path in paths:
        text = path.read_text()
        assert not framework_includes(text), f"{path}: kernels know no framework; that belongs into native/binding"
        assert "__FILE__" not in text and "__LINE__" not in text, (
            f"{path}: a comment or a move must not change the bytes"
        )
    planted = '#include <torch/library.h>\n#include "onnxruntime_c_api.h"\n#include <vector>'
    assert paths and framework_includes(planted) == ["torch/library.h", "onnxruntime_c_api.h"]


def run_together(text: str) -> list[str]:
    """Return the lines of a header's comment in which a part such as ``NaN      As ...`` follows another one."""
    return re.findall(r"^// .*\S [A-Z]\w+(?:  +)[A-Z].*", text, re.MULTILINE)


def test_each_part_of_a_kernels_comment_begins_a_line() -> None:
    """clang-format joins them if the line before is too long, and the contract becomes unreadable."""
    paths = [*ROOT.glob("native/*/kernel.h"), *ROOT.glob("examples/*/native/*/kernel.h")]
    assert paths and {str(path): found for path in paths if (found := run_together(path.read_text()))} == {}
    assert len(run_together("// Shapes   x (N,). Numbers  In double.\n// NaN      As IEEE 754 has it.\n")) == 1


@pytest.mark.parametrize("stage", STAGES)
def test_code_hash_finds_all_imports_of_a_stage(stage: str) -> None:
    """opmatrix.records.code_hash finds imports with a pattern; the parser must find the same files."""
    found: set[Path] = set()
    waiting = [module_file(stage)]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in imports(path):
            target = PACKAGE.parent.joinpath(*name.split("."))
            waiting += [p for p in (target.with_suffix(".py"), target / "__init__.py") if p.is_file()]
    assert set(code_hash.modules(stage)) - {PACKAGE / "__init__.py"} == found - {PACKAGE / "__init__.py"}


def test_no_module_calls_anything_on_import() -> None:
    """Modules only define things; a call at the top level would run on every import."""
    for path in modules(PACKAGE):
        if path.name == "__main__.py":
            continue
        for node in ast.parse(path.read_text()).body:
            assert not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)), f"{path}:{node.lineno}"
            if isinstance(node, ast.For | ast.While | ast.With):
                raise AssertionError(f"{path}:{node.lineno}: runs on import")


def test_paths_under_build_come_from_one_module() -> None:
    for path in modules(PACKAGE):
        if path.name != "paths.py":
            assert not re.search(r"""["']build/""", path.read_text()), f"{path}: use opmatrix.project.paths"


def shims(text: str) -> tuple[set[str], set[str]]:
    """Return torch's symbols that a header declares: those that bindings always call, and those of newer torches."""
    always, _, newer = text.partition("// Newer than 2.9")
    names = re.compile(r"\b(?:aoti_torch|torch)_\w+(?=\()")
    return set(names.findall(always)), set(names.findall(newer))


def test_bindings_use_no_symbol_outside_the_targets_list_and_all_are_weak() -> None:
    """tests/native and the compile stage check this for the libraries themselves; this test needs no compiler. An older
    torch must load the library, which then names the version that it needs."""
    header = (ROOT / "native/binding/stable/torch_shims.h").read_text()
    always, newer = shims(header)
    assert len(always) > 20
    assert always <= symbols.torch_shims("2.9")
    assert newer == symbols.torch_shims("newer") <= symbols.torch_shims("2.15") - symbols.torch_shims("2.9")
    assert header.count("[[gnu::weak]]") == len(always | newer)
    planted, _ = shims("void aoti_torch_new_in_2_10(int);\n// Newer than 2.9\nvoid torch_parallel_for(int);")
    assert planted == {"aoti_torch_new_in_2_10"}
    assert not planted <= symbols.torch_shims("2.9")


def addons_imported(files: dict[str, str]) -> list[str]:
    """Return the imports of addons by the core."""
    package = Package.of(files)
    return [
        f"{module} imports {name}"
        for module, text in package.modules.items()
        if not module.startswith("opmatrix.addons")
        for name in sorted(names_imported(text))
        if name.startswith("opmatrix.addons")
    ]


def test_the_core_imports_no_addon() -> None:
    assert addons_imported({path.relative_to(ROOT).as_posix(): path.read_text() for path in modules(PACKAGE)}) == []
    for line in (
        "from opmatrix.addons.bench import run",
        "def f():\n    import opmatrix.addons.check.read",
        "if TYPE_CHECKING:\n    from opmatrix.addons.team.on import Elsewhere",
    ):
        assert addons_imported({"pipeline/opmatrix/plan/steps.py": f"{line}\n"}) != [], line
