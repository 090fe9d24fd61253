"""The pieces of a wheel: platform, declaration, copied modules, licences, commit. docs/ship.md matches the code: its
Python blocks run in an environment that has only the wheel. tests/docs runs them as well, where opmatrix is
installed. The wheel's settings in pyproject.toml, and the messages for wrong ones.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.errors import DistError, UsageError
from opmatrix.declaration.load import Operator, load_operators
from opmatrix.project.paths import Paths
from opmatrix.project.settings import key_of
from opmatrix.records import code_hash
from opmatrix.spec import Headers, OpSpec
from opmatrix.toolchain.symbols import Symbols
from opmatrix.wheel import contents, settings, sources
from opmatrix.wheel.settings import Dist, parse
from tests.wheel.shipping import Environment

ROOT = Path(__file__).parents[2]
OPERATORS = load_operators(Paths(ROOT))
DIST = Dist(
    name="my_ops", version="1.0", operators=(), summary="", license=None, licenses=("LICENSE",), third_party={}
)  # fmt: skip


def needs(*versions: str, libraries: tuple[str, ...] = ("libc.so.6",), symbols: tuple[str, ...] = ()) -> Symbols:
    undefined, none = frozenset(symbols), frozenset[str]()
    return Symbols(
        defined=none, undefined=undefined, weak=none, versioned=none, needed=libraries, versions=frozenset(versions)
    )


@pytest.mark.parametrize(
    ("found", "tag"),
    [
        (needs("GLIBC_2.2.5"), "manylinux_2_5"),
        (needs("GLIBC_2.14", "GLIBCXX_3.4.19"), "manylinux_2_17"),
        (needs("GLIBC_2.2.5", "CXXABI_1.3.13"), "manylinux_2_34"),
        (needs("GLIBC_2.2.5", libraries=("libmvec.so.1",)), "manylinux_2_24"),
        (needs("GLIBC_2.2.5", symbols=("__cxa_thread_atexit_impl",)), "manylinux_2_24"),
        (needs("GLIBC_2.2.5", libraries=("libtorch_cpu.so", "ld-linux-x86-64.so.2")), "manylinux_2_5"),
    ],
)
def test_the_platform_is_the_oldest_that_has_every_symbol(found: Symbols, tag: str) -> None:
    assert contents.platform([needs("GLIBC_2.2.5"), found]) == f"{tag}_x86_64"


def test_the_highest_version_of_each_family_and_a_symbol_that_no_platform_has() -> None:
    found = [needs("GLIBC_2.2.5", "GLIBC_2.14"), needs("GLIBC_2.4", "GLIBCXX_3.4", "CXXABI_TM_1", "CXXABI_1.3.9")]
    assert contents.highest(found) == {"CXXABI": "1.3.9", "GLIBC": "2.14", "GLIBCXX": "3.4"}
    with pytest.raises(DistError, match=r"no manylinux platform has GLIBC_9\.9, libmagic\.so\.1, which the libraries"):
        contents.platform([needs("GLIBC_9.9", libraries=("libmagic.so.1",))])


@pytest.mark.parametrize("spec", [o.spec for o in OPERATORS], ids=lambda spec: spec.name)
def test_a_declaration_is_equal_after_it_is_written_and_read(spec: OpSpec) -> None:
    text = contents.declaration(spec, "my_ops")
    assert max(map(len, text.splitlines())) <= 120
    namespace: dict[str, object] = {}
    exec(text.replace("my_ops._opmatrix.", "opmatrix."), namespace)
    assert namespace["SPEC"] == replace(spec, tolerances={}, kernel=None, headers=(), full_range=False)


def test_any_text_fits_a_docstring() -> None:
    for text in ("plain", 'say "it"', 'three """ of them', "C:\\new", 'both \\"', '""""'):
        assert ast.literal_eval(f'"""{contents.escaped(text)}"""') == text


def test_the_copied_modules_are_complete() -> None:
    """Each copied module, and each template, imports only other copied modules and frameworks."""
    files = sources.vendored_source("my_ops", version="1.0")
    rooms = {path.split("/")[1] for path in files if path.count("/") > 1}
    expected = {"basics", "data", "declaration", "lowering", "project", "signature", "sizes", "torch_ops", "wheel"}
    assert rooms == expected, "a wheel needs no more to export and register"
    modules = {"my_ops." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in files}
    for path, text in files.items():
        if not path.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("my_ops"):
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                assert node.module in modules, f"{path}: {node.module}"
                is_folder = f"{node.module.removeprefix('my_ops.').replace('.', '/')}/__init__.py" in files
                assert not is_folder or inner <= modules, f"{path}: {inner}"
        assert "opmatrix" not in {word for line in text.splitlines() if "import" in line for word in line.split()}
    copied = {path.relative_to(code_hash.PACKAGE).as_posix() for path in sources.sources()}
    for template in settings.TEMPLATES:
        for package, name in re.findall(r"from {{ name }}\._opmatrix\.([\w.]+) import (\w+)", template.read_text()):
            path = package.replace(".", "/")
            assert {f"{path}.py", f"{path}/{name}.py"} & copied, f"{template.name}: {package}"


def test_a_file_that_imports_a_module_outside_the_wheel_is_refused() -> None:
    vendored = sources.vendored_source("my_ops", version="1.0")

    def rewritten(text: str) -> str:
        return sources.rewrite_handwritten(text, "my_ops", shown="ops/a/lowering.py", vendored=vendored)

    assert rewritten("from opmatrix.spec import OpSpec\n") == "from my_ops._opmatrix.spec import OpSpec\n"
    for module in ("opmatrix.ort_checks.verify", "ops.nms.lowering"):
        with pytest.raises(DistError, match=rf"ops/a/lowering\.py imports {module}, which no wheel has"):
            rewritten(f"import {module}\n")


def test_third_party_licences(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("own")
    (tmp_path / "mpl.txt").write_text("MPL 2")
    (tmp_path / "third_party").mkdir()
    (tmp_path / "third_party/COPYING").write_text("theirs")
    eigen = Headers(folder="cmeel.prefix/include/eigen3", distribution="cmeel-eigen")

    def collect(headers: Headers, dist: Dist = DIST) -> dict[str, bytes]:
        operator = replace(OPERATORS[-1], spec=replace(OPERATORS[-1].spec, headers=(headers,)))
        return contents.licenses(tmp_path, dist, [operator])

    with pytest.raises(
        DistError, match="the package 'cmeel-eigen', with whose headers operators are compiled, carries"
    ):
        collect(eigen)
    named = replace(DIST, third_party={"cmeel-eigen": ("mpl.txt",)})
    assert collect(eigen, named)["cmeel-eigen/mpl.txt"] == b"MPL 2"
    assert collect(Headers(folder="third_party"))["third_party/COPYING"] == b"theirs"
    found = collect(Headers(folder="include", distribution="jinja2"))
    assert [name for name in found if name.startswith("jinja2/")] == ["jinja2/LICENSE.txt"]
    assert found["LICENSE"] == b"own"


def test_the_commit_is_that_of_git(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    assert sources.commit(tmp_path / "sub") == sources.commit(tmp_path)
    git("init", "-q", "main")
    inner = tmp_path / "main"
    assert sources.commit(inner) is None
    git("-C", "main", "commit", "-q", "--allow-empty", "-m", "first")
    head = git("-C", "main", "rev-parse", "HEAD")
    assert sources.commit(inner) == head
    git("-C", "main", "worktree", "add", "-q", "../other")
    git("-C", "other", "commit", "-q", "--allow-empty", "-m", "second")
    assert sources.commit(tmp_path / "other") == git("-C", "other", "rev-parse", "HEAD") != head
    git("-C", "main", "checkout", "-q", "--detach")
    git("-C", "main", "pack-refs", "--all")
    assert sources.commit(inner) == head
    (inner / "file").write_text("")
    assert sources.dirty(inner, [inner / "file"]) is True
    assert sources.dirty(inner, [inner / "none"]) is False


PAGE = (ROOT / "docs/ship.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.ort
def test_the_code_runs(fresh: Environment, tmp_path: Path) -> None:
    code = [block for block in blocks("python") if "get_local_kernel" not in block]  # which test_hf_kernel.py runs
    assert len(code) == 3
    (tmp_path / "page.py").write_text(f"import os\nos.chdir({str(tmp_path)!r})\n" + "\n".join(code))
    fresh.check(tmp_path / "page.py")
    assert {path.name for path in tmp_path.glob("*.onnx")} == {"legacy.onnx", "dynamo.onnx"}


def test_every_setting_and_the_line_of_the_program_are_in_the_page() -> None:
    assert set(tomllib.loads("".join(blocks("toml")))["tool"]["opmatrix"]["dist"]) == set(map(key_of, fields(Dist)))
    (line,) = blocks("cpp")
    assert line in (ROOT / "tests/wheel/run_model.cc").read_text().replace("  check(ort->Reg", "check(ort->Reg")


NAMED = {"name": "my_ops", "version": "1.0.0"}
KERNELS = ("add_and_round", "custom_op_one", "custom_op_two", "dual_residual", "group_norm", "nms")


def read(root: Path, known: tuple[Operator, ...] = OPERATORS, **table: Any) -> Dist:
    return parse({**NAMED, **table}, known, root=root)


def test_the_operators_of_a_wheel(tmp_path: Path) -> None:
    """All that have a library are the default; used ones are included."""
    found = read(tmp_path)
    assert found.operators == KERNELS
    assert found.summary == f"Operators for torch and ONNX Runtime: {', '.join(KERNELS)}."
    assert found.licenses == ()
    (tmp_path / "LICENSE").write_text("")
    assert read(tmp_path).licenses == ("LICENSE",)
    found = read(tmp_path, operators=["add_and_round", "gelu"])
    assert found.operators == ("add_and_round", "custom_op_one", "custom_op_two", "gelu")
    assert [o.name for o in found.chosen(OPERATORS)] == list(found.operators)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": None}, "name: found None, allowed: what Python can import"),
    "a dash": ({"name": "my-ops"}, "name: found 'my-ops', allowed: what Python can import"),
    "two underscores": ({"name": "my__ops"}, "name: found 'my__ops', allowed"),
    "a keyword": ({"name": "lambda"}, "allowed: a name that is not taken"),
    "the standard library": ({"name": "json"}, "allowed: a name that is not taken"),
    "a framework": ({"name": "onnx"}, "allowed: a name that is not taken"),
    "no version": ({"version": 1}, "version: found 1, allowed: a version as PEP 440 has it"),
    "no normal form": ({"version": "1.0-rc1"}, "version: found '1.0-rc1', allowed"),
    "a field": ({"operator": []}, "operator: unknown setting, allowed: name, version, operators"),
    "near": ({"licence": "MIT"}, "did you mean 'license'?"),
    "no list": ({"operators": "nms"}, "operators: found 'nms', allowed: a list of folders of ops/: add_and_round,"),
    "none": ({"operators": []}, "operators: found [], allowed"),
    "unknown": ({"operators": ["nmss"]}, "no operator 'nmss' in ops/, there is: add_and_round, "),
    "twice": ({"operators": ["nms", "nms"]}, "allowed: each once"),
    "no library": ({"operators": ["gelu"]}, "none of gelu has a library that opmatrix builds, so "),
    "a summary": ({"summary": "a\nb"}, "summary: found 'a\\nb', allowed: a string of one line"),
    "no file": ({"license-files": ["COPYING"]}, "license-files: found 'COPYING', allowed: a file of the project"),
    "outside": ({"license-files": ["../LICENSE"]}, "license-files: found '../LICENSE', allowed: a file of the project"),
    "no files": ({"license-files": "LICENSE"}, "license-files: found 'LICENSE', allowed: a list of files"),
    "third parties": ({"third-party-licenses": ["MPL2"]}, "third-party-licenses: found ['MPL2'], allowed: files by"),
    "third party": (
        {"third-party-licenses": {"eigen": ["MPL2"]}},
        "third-party-licenses: eigen: found 'MPL2', allowed",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_reported(name: str, tmp_path: Path) -> None:
    table, text = WRONG[name]
    with pytest.raises(UsageError) as raised:
        read(tmp_path, **table)
    (line,) = str(raised.value).splitlines()
    assert line.startswith("pyproject.toml: [tool.opmatrix.dist]: ")
    assert text in line


def test_every_mistake_is_reported_at_once_and_valid_versions_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        read(tmp_path, name="my ops", version="one", operators=["x"])
    assert len(str(raised.value).splitlines()) == 3
    for version in ("0.1", "2!1.0", "1.0a1", "1.0rc2.post3.dev4", "1.0.0+cpu.1"):
        assert read(tmp_path, version=version).version == version


def test_a_handwritten_binding_cannot_be_linked_and_is_left_out_by_default(tmp_path: Path) -> None:
    """Every doit command reads the settings."""
    existing = load_operators(Paths(ROOT / "tests/projects/existing"))
    with pytest.raises(UsageError, match=r"'damped' has a binding by hand, native/damped/torch\.cc, which cannot"):
        read(tmp_path, existing, operators=["damped"])
    assert read(tmp_path, (*OPERATORS, *existing)).operators == KERNELS
    (tmp_path / "pyproject.toml").write_text('[tool.opmatrix.dist]\nname = "my_ops"\nversion = "1.0.0"\n')
    assert settings.read(Paths(tmp_path), existing) is None
    assert settings.read(Paths(tmp_path), OPERATORS) is not None
