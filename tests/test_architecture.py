"""Who may import what, and what may not stand where."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from opmatrix import code_hash
from opmatrix.toolchain import elf_symbols

from docs.site.imports import imports as names_imported

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pipeline"
FRAMEWORKS = {"torch", "onnx", "onnxscript", "onnx_ir", "onnxruntime", "numpy"}
CHECKS = ("check_read", "check_run", "check_compare")  # the parts of `doit check` that know ONNX Runtime
STAGES = sorted(p.stem for p in (PACKAGE / "stages").glob("*.py") if p.stem != "__init__")


def imports(path: Path) -> set[str]:
    """Return the dotted names that a file imports."""
    return set(names_imported(path.read_text()))


def modules(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py"))


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_imports_no_other_stage_and_no_runner(stage: str) -> None:
    found = set(imports(PACKAGE / "stages" / f"{stage}.py"))
    others = {n for n in found if n.startswith(("opmatrix.stages", "opmatrix.engine"))}
    assert not others, f"stages/{stage}.py imports {others}: stages speak through files"


@pytest.mark.parametrize("path", modules(PACKAGE / "runner"), ids=lambda p: p.name)
def test_the_runner_imports_no_stage(path: Path) -> None:
    assert not {n for n in imports(path) if n.startswith("opmatrix.stages")}


@pytest.mark.parametrize("path", [*modules(PACKAGE), ROOT / "dodo.py"], ids=lambda p: p.name)
def test_only_the_runner_knows_doit(path: Path) -> None:
    if path.is_relative_to(PACKAGE / "runner"):
        return
    assert not {n for n in imports(path) if n.split(".")[0] == "doit"}


def test_verify_never_imports_torch() -> None:
    reached = [p for stage in ("verify", "data", "report", *CHECKS) for p in code_hash.modules(stage)]
    assert not [p for p in reached if "torch" in {n.split(".")[0] for n in imports(p)}]


@pytest.mark.parametrize("command", [["list"], ["list", "--all"], ["list", "--status"]], ids=" ".join)
def test_building_the_graph_imports_no_framework(command: list[str]) -> None:
    """doit reads dodo.py on every command, so an import there is paid on every command."""
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


KERNEL_HEADERS = sorted([*(ROOT / "native/include").rglob("*.h"), *(ROOT / "native").glob("*/kernel.h")])


@pytest.mark.parametrize("path", KERNEL_HEADERS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_no_framework_header_in_kernels(path: Path) -> None:
    text = path.read_text()
    assert not framework_includes(text), f"{path}: kernels know no framework; that belongs into native/binding"
    assert "__FILE__" not in text and "__LINE__" not in text, "a comment or a move must not change the bytes"


def run_together(text: str) -> list[str]:
    """Return the lines of a header's comment in which a part such as ``NaN      As ...`` stands behind another."""
    return re.findall(r"^// .*\S [A-Z]\w+(?:  +)[A-Z].*", text, re.MULTILINE)


@pytest.mark.parametrize(
    "path",
    sorted(ROOT.glob("native/*/kernel.h")) + sorted(ROOT.glob("examples/*/native/*/kernel.h")),
    ids=lambda p: p.parent.name,
)
def test_each_part_of_a_kernels_comment_begins_a_line(path: Path) -> None:
    """clang-format joins them where a line before them is too long, and the contract cannot be read."""
    assert not run_together(path.read_text())


def test_parts_that_are_run_together_are_seen() -> None:
    assert len(run_together("// Shapes   x (N,). Numbers  In double.\n// NaN      As IEEE 754 has it.\n")) == 1


def test_the_header_rule_sees_a_planted_include() -> None:
    assert framework_includes('#include <torch/library.h>\n#include "onnxruntime_c_api.h"\n#include <vector>') == [
        "torch/library.h",
        "onnxruntime_c_api.h",
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_the_code_of_a_stage_is_found_whole(stage: str) -> None:
    """opmatrix.code_hash finds imports with a pattern; the parser must find the same files."""
    found: set[Path] = set()
    waiting = [PACKAGE / "stages" / f"{stage}.py"]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in imports(path):
            target = ROOT.joinpath(*name.split("."))
            waiting += [
                p for p in (target.with_suffix(".py"), target / "__init__.py") if p.is_file() and name != "pipeline"
            ]
    assert set(code_hash.modules(stage)) - {PACKAGE / "__init__.py"} == found - {PACKAGE / "__init__.py"}


def named_rooms(page: str) -> set[str]:
    """Return the modules and packages of pipeline/ that the table of rooms names."""
    table = page.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `pipeline/([^`]+)`", table, re.MULTILINE)
    return {name for row in rows for name in re.sub(r"[{}]|\.py$|/$", "", row).split(",")}


def test_every_module_has_a_room_in_the_page() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    there = {p.stem for p in PACKAGE.glob("[!_]*.py")} | {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert named_rooms(page) == there
    assert named_rooms(page.replace("`pipeline/opmatrix/spec.py`", "")) == there - {"spec"}


def test_nothing_happens_on_import() -> None:
    """Modules define things; a call at the top level would run when somebody only looks."""
    for path in modules(PACKAGE):
        if path.name == "__main__.py":
            continue
        for node in ast.parse(path.read_text()).body:
            assert not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)), f"{path}:{node.lineno}"
            if isinstance(node, ast.For | ast.While | ast.With):
                raise AssertionError(f"{path}:{node.lineno}: runs on import")


def test_paths_under_build_come_from_layout_alone() -> None:
    for path in modules(PACKAGE):
        if path.name != "layout.py":
            assert not re.search(r"""["']build/""", path.read_text()), f"{path}: use opmatrix.project.paths"


def shims(text: str) -> tuple[set[str], set[str]]:
    """Return torch's symbols that a header declares: those that bindings always call, and those of newer torches."""
    always, _, newer = text.partition("// Newer than 2.9")
    names = re.compile(r"\b(?:aoti_torch|torch)_\w+(?=\()")
    return set(names.findall(always)), set(names.findall(newer))


def test_bindings_use_no_symbol_outside_the_targets_list() -> None:
    """tests/native and the compile stage hold the same of the libraries themselves; this needs no compiler."""
    always, newer = shims((ROOT / "native/binding/stable/torch_shims.h").read_text())
    assert len(always) > 20
    assert always <= elf_symbols.torch_shims("2.9")
    assert newer == elf_symbols.torch_shims("newer") <= elf_symbols.torch_shims("2.15") - elf_symbols.torch_shims("2.9")


def test_an_older_torch_loads_a_library_to_be_told_what_it_needs() -> None:
    """A symbol that must be found would be all that the loader names."""
    header = (ROOT / "native/binding/stable/torch_shims.h").read_text()
    always, newer = shims(header)
    assert header.count("[[gnu::weak]]") == len(always | newer)


def test_the_symbol_rule_sees_a_planted_declaration() -> None:
    planted, _ = shims("void aoti_torch_new_in_2_10(int);\n// Newer than 2.9\nvoid torch_parallel_for(int);")
    assert planted == {"aoti_torch_new_in_2_10"}
    assert not planted <= elf_symbols.torch_shims("2.9")
