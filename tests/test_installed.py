"""A user's project uses opmatrix as an installed package, from its wheel alone, and survives an upgrade of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from opmatrix.basics.version import minor
from opmatrix.project import cells
from opmatrix.project.settings import installed
from opmatrix.scaffold import new_project
from tests.support.projects import give_an_hour
from tests.support.quick_start import fill_in
from tests.support.wheels import build_wheel

ROOT = Path(__file__).parents[1]
PACKAGED = ("pipeline", "native", "requirements", "pyproject.toml", "README.md", "LICENSE")
SCHEMA = ("--schema", "my::scale_shift(Tensor x, Tensor scale, float shift=0.0) -> Tensor", "--domain", "my.domain")
MADE = ("build", ".tox", "__pycache__")
TORCH, ORT = minor(installed().torch), minor(installed().onnxruntime)
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{old!r} is not in {path}"
    path.write_text(text.replace(old, new, 1))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a later version, with an additional command, stage and ONNX Runtime."""
    copy = tmp_path_factory.mktemp("later")
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    replace(copy / "pyproject.toml", 'version = "0.1.0"', 'version = "0.2.0"')
    replace(
        copy / "pipeline/opmatrix/commands/main.py",
        '    "why": ',
        '    "greet": "opmatrix.commands.greet:Greet",\n    "why": ',
    )
    (copy / "pipeline/opmatrix/commands/greet.py").write_text(
        "from opmatrix.commands.state import List\n\n\nclass Greet(List):\n"
        "    name = 'greet'\n\n    def execute(self, params, args):\n        print('hello')\n        return 0\n"
    )
    (copy / "pipeline/opmatrix/report/greet.py").write_text("def run(paths):\n    print('hello from a stage')\n")
    greeting = '    "greet": ("greet",),\n'
    replace(copy / "pipeline/opmatrix/commands/stages.py", '    "dist": (', f'{greeting}    "dist": (')
    replace(
        copy / "pipeline/opmatrix/records/code_hash.py",
        '    "link-wheel": ',
        '    "greet": "opmatrix.report.greet",\n    "link-wheel": ',
    )
    replace(
        copy / "pipeline/opmatrix/project/cells.py",
        '    "1.31": Ort(',
        '    "1.99": Ort(ir=13, opset=26),\n    "1.31": Ort(',
    )
    shutil.copy(copy / "requirements/ort1.24.txt", copy / "requirements/ort1.99.txt")
    return build_wheel(copy, tmp_path_factory.mktemp("wheel"))


def install(wheel: Path, python: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--no-index", "--no-deps", "--force-reinstall", str(wheel)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with the wheel and this environment's packages, but without this checkout."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    install(wheel, python)
    return python


def tools() -> str:
    """Return the folder with the packages of requirements/wheel.txt, or skip the test that asks for it."""
    if not (folder := os.environ.get("OPMATRIX_TOOLS")):
        pytest.skip("OPMATRIX_TOOLS names no folder with requirements/wheel.txt; `./run tox run -e tests` makes one")
    return folder


def run(folder: Path, *command: object, code: int = 0, environ: Mapping[str, str] | None = None) -> str:
    """Run a command that does not see the checkout, with variables `environ` as well; return its output."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("TOX_")}
        | dict(environ or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def written(project: Path) -> Mapping[str, str]:
    """Return the files of a project that opmatrix did not generate, with their hashes."""
    files = (p for p in project.rglob("*") if p.is_file() and not {*MADE} & {*p.relative_to(project).parts})
    return {str(p.relative_to(project)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def project(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Begin with nothing, as a new user does: make a project, fill in an operator, and verify all of it."""
    folder = tmp_path_factory.mktemp("anywhere")
    run(folder, python.with_name("opmatrix"), "new", "--project", "my_ops")
    project = folder / "my_ops"
    give_an_hour(project)
    run(project, python, "-m", "doit", "new", *SCHEMA)
    fill_in(project)
    assert "6 cells: 6 verified" in run(project, python, "-m", "doit")
    return project


def test_the_wheel_has_headers_and_pins_and_no_operator(wheel: Path) -> None:
    packed = zipfile.ZipFile(wheel).namelist()
    packaged = (p for p in (ROOT / "pipeline").rglob("*") if p.is_file() and p.suffix not in (".pyc", ".pyo"))
    assert {str(path.relative_to(ROOT / "pipeline")) for path in packaged} <= {*packed}
    assert {name.partition("/")[0] for name in packed} == {"opmatrix", f"opmatrix-{VERSION}.dist-info"}
    assert "opmatrix/native/include/opmatrix/tensor_view.h" in packed
    assert "opmatrix/native/binding/runtime.cc" in packed
    pins = {Path(name).name for name in packed if name.startswith("opmatrix/requirements/")}
    locks = {path.name for path in (ROOT / "requirements").glob("*.txt")}
    assert pins == {name for name in locks if re.match(r"(torch|ort)\d", name)}  # the pins of the matrix
    assert not [name for name in packed if "group_norm" in name or name.startswith(("ops/", "native/"))]


def test_the_project_uses_the_wheel(python: Path, project: Path) -> None:
    where = run(project, python, "-c", "import opmatrix; print(opmatrix.__file__)").strip()
    assert Path(where).is_relative_to(python.parents[1])
    assert not (project / "native/include").exists() and not (project / "requirements").exists()


def test_models_are_checked_without_a_project(python: Path, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "xy")
    for op_type in ("Relu", "Tanh"):
        graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"])], "graph", [x], [y])
        imports = [helper.make_opsetid("", 18)]
        onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / f"{op_type}.onnx")
    said = run(tmp_path, python.with_name("opmatrix"), "check", "Relu.onnx", "Tanh.onnx", "--shape", "x=5,3")
    assert said.splitlines()[-1] == "2 models: 2 right"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["Relu.onnx", "Tanh.onnx"]


def test_every_command_works(python: Path, project: Path) -> None:
    before = written(project)
    doit = (python, "-m", "doit")
    assert "all up to date" in run(project, *doit)
    assert "verify     " in run(project, *doit, "list")
    assert "up to date" in run(project, *doit, "why")
    assert "--from-onnx" in run(project, *doit, "help", "new")
    model = f"build/export/scale_shift/custom/torch{TORCH}-dynamo-opset18"
    found = min((project / model).glob("*/model.onnx"))
    assert "my.domain::ScaleShift" in run(project, *doit, "check", found)
    run(project, *doit, "dist")
    (shipped,) = (project / "build/dist").glob("my_ops-*.whl")
    packed = zipfile.ZipFile(shipped).namelist()
    ours = {"my_ops/_opmatrix/LICENSE", "my_ops/_opmatrix/wheel/runtime/register.py", "my_ops/libmy_ops_ort.so"}
    assert ours <= {*packed}  # the modules that a wheel copies from opmatrix are in its own wheel
    assert "report: removed" in run(project, *doit, "clean") and not (project / "build/report").exists()
    assert "6 cells: 6 verified" in run(project, *doit)
    assert written(project) == before


def test_a_header_of_the_package_is_an_input_like_one_of_the_project(python: Path, project: Path) -> None:
    header = next(python.parents[1].glob("lib/*/site-packages/opmatrix/native/include/opmatrix/math.h"))
    before = header.read_text()
    header.write_text(before + "// edited\n")
    try:
        assert "compile:scale_shift" in run(project, python, "-m", "doit")
    finally:
        header.write_text(before)


def test_tox_knows_the_matrix(python: Path, project: Path) -> None:
    before, tox = written(project), (python, "-m", "tox")
    listed = run(project, *tox, "list")
    for name in ("cells", "torch1.13-opset17", "torch2.9", f"torch{TORCH}-opset18", "ort1.18"):
        assert f"\n{name} " in listed
    said = run(project, *tox, "run", "-e", f"torch{TORCH}-opset18")
    assert "2 cells: 2 verified" in said and f"torch{TORCH}-opset18: OK" in said
    assert "cells: OK" in run(project, *tox)
    reason = "torch2.0-opset20: the legacy exporter of torch 2.0 writes opsets 7 to 18, not 20"
    assert reason in run(project, *tox, "run", "-e", "torch2.0-opset20", code=254)
    assert written(project) == before


def test_the_workflow_is_valid_and_its_commands_run(python: Path, project: Path, tmp_path: Path) -> None:
    """But for the installation, in the order of the workflow, as GitHub's runner calls them: `bash -e`."""
    run(project, python.with_name("opmatrix"), "new", "--ci", "github")
    workflow = project / new_project.WORKFLOW
    try:
        packages = {"PYTHONPATH": tools()}
        check = [python, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
        assert "ok" in run(project, *check, workflow, environ=packages)
        bad = tmp_path / "bad.yml"
        bad.write_text(workflow.read_text().replace("runs-on:", "run-on:", 1))
        assert "Schema validation errors" in run(project, *check, bad, code=1, environ=packages)
        read = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))['jobs']))"
        jobs = json.loads(run(project, python, "-c", read, workflow, environ=packages))
        (tmp_path / "environment").touch()
        for name, count in {"verify": 4, "matrix": 3, "report": 2}.items():
            steps = [step for step in jobs[name]["steps"] if "run" in step and step["name"] != "Install opmatrix"]
            assert len(steps) == count
            for step in steps:
                command = step["run"].replace("${{ matrix.torch }} ort=all", TORCH)  # a second ONNX Runtime is 150 MB
                path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
                environ = {"PATH": path, "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
                           "GITHUB_ENV": str(tmp_path / "environment"), "RUNNER_TEMP": str(tmp_path), "KEY": "a key",
                           "OPMATRIX_CACHE": (tmp_path / "shared").as_uri()}  # fmt: skip
                run(project, "bash", "-e", "-c", command.replace("torch=all ort=all", ""), environ=environ)
        assert (tmp_path / "summary.md").read_text().count("6 cells: 6 verified") == 3
        assert (tmp_path / "environment").read_text() == f"OPMATRIX_CACHE_KEY={tmp_path}/cache-key\n" * 2
        assert (tmp_path / "cache-key").read_text() == "a key\n"
        assert (tmp_path / "cache-key").stat().st_mode & 0o077 == 0, "which ssh-keygen demands"
        assert jobs["report"]["needs"] == "matrix" and jobs["report"]["env"] == {"OPMATRIX_CACHE_MODE": "read"}
        given = [step.get("with", {}) for job in jobs.values() for step in job["steps"]]
        uploaded = [found["path"] for found in given if "report" in found.get("name", "")]
        assert len(uploaded) == 3 and all((project / path / "index.html").is_file() for path in uploaded)
    finally:
        shutil.rmtree(project / ".github")


@pytest.mark.parametrize(
    ("number", "options", "key"),
    [
        (0, ["--builtin-schema", "vendor.github-workflows"], "runs-on:"),
        (1, ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"], "script: doit -n 2 --shard"),
    ],
    ids=["github", "gitlab"],
)
def test_the_workflows_of_the_page_are_valid(
    python: Path, project: Path, tmp_path: Path, number: int, options: list[str], key: str
) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/how-to/continuous-integration.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    path, check = tmp_path / "page.yml", [python, "-m", "check_jsonschema", *options]
    path.write_text(blocks[number])
    assert "ok" in run(project, *check, path, environ={"PYTHONPATH": tools()})
    assert key in blocks[number]
    path.write_text(blocks[number].replace(key, f"x-{key}", 1))
    assert "Schema validation errors" in run(project, *check, path, code=1, environ={"PYTHONPATH": tools()})


def test_pyright_has_no_finding_in_a_project(python: Path, project: Path, tmp_path: Path) -> None:
    """In strict mode, in the files of a project and of an operator that `doit new` wrote; wrong arguments are found."""
    settings = tmp_path / "pyrightconfig.json"
    where = {"include": [str(project / name) for name in ("ops", "dodo.py", "toxfile.py")]}
    settings.write_text(json.dumps({"typeCheckingMode": "strict", **where}))
    check = [python, "-m", "basedpyright", "--project", settings, "--pythonpath", python]
    packages = {"PYTHONPATH": tools()}
    assert "0 errors, 0 warnings, 0 notes" in run(project, *check, environ=packages)
    wrong = project / "ops/scale_shift/wrong.py"
    wrong.write_text('from opmatrix.spec import Input\n\nInput(name=3, type="T")\nInput(nam="x", type="T")\n')
    try:
        said = run(project, *check, code=1, environ=packages)
    finally:
        wrong.unlink()
    assert '"Literal[3]" is not assignable to "str"' in said and 'No parameter named "nam"' in said


def test_an_upgrade_changes_no_file(python: Path, wheel: Path, newer: Path, project: Path) -> None:
    """A project of an older opmatrix gets the additions of a newer one, and none of its files changes."""
    before = written(project)
    run(project, python, "-m", "doit")
    assert "no task, operator, command or output 'greet'" in run(project, python, "-m", "doit", "greet", code=2)
    install(newer, python)
    try:
        assert run(project, python, "-m", "doit", "greet") == "hello\n"
        assert run(project, python, "-m", "opmatrix", "greet") == "hello from a stage\n"
        assert "\nort1.99 " in run(project, python, "-m", "tox", "list")
        assert "6 cells: 6 verified" in run(project, python, "-m", "doit", "-a", "verify", "report")
        assert written(project) == before
    finally:
        install(wheel, python)
    assert "\nort1.99 " not in run(project, python, "-m", "tox", "list")


def test_a_version_between_two_rows_is_measured_in_a_project(python: Path, wheel: Path, tmp_path: Path) -> None:
    """As with an opmatrix that lacks the row of the installed ONNX Runtime, and has an older and a newer one."""
    run(tmp_path, python.with_name("opmatrix"), "new", "--project", "my_ops")
    project = tmp_path / "my_ops"
    run(project, python, "-m", "doit", "new", *SCHEMA)
    fill_in(project)
    (table,) = python.parents[1].glob("lib/*/site-packages/opmatrix/project/cells.py")
    row = next(line for line in table.read_text().splitlines() if line.startswith(f'    "{ORT}": Ort('))
    older = [*cells.ORT][[*cells.ORT].index(ORT) - 1]
    replace(table, f"{row}\n", "")
    try:
        line = f"not measured: onnxruntime {ORT} is used as {older}. To measure: opmatrix probe"
        said = run(project, python, "-m", "doit", "opsets=18")
        assert "2 cells: 2 verified" in said and said.count(line) == said.count("not measured") == 1
        before = tomllib.loads((project / "pyproject.toml").read_text())
        assert "wrote in pyproject.toml" in run(project, python.with_name("opmatrix"), "probe")
        after = tomllib.loads((project / "pyproject.toml").read_text())
        measured = {"ort": {ORT: {"ir": cells.ORT[ORT].ir, "opset": cells.ORT[ORT].opset}}}
        assert after["tool"]["opmatrix"].pop("matrix") == measured and after == before
        said = run(project, python, "-m", "doit", "opsets=18")
        assert "verify:scale_shift" in said and "not measured" not in said
    finally:
        install(wheel, python)


def test_an_operator_of_the_checkout_moves_to_a_project(python: Path, tmp_path: Path) -> None:
    run(tmp_path, python.with_name("opmatrix"), "new", "--project", "my_ops")
    give_an_hour(tmp_path / "my_ops")
    for room in ("ops", "native"):
        shutil.copytree(ROOT / room / "group_norm", tmp_path / "my_ops" / room / "group_norm")
    assert "4 cells: 4 verified" in run(tmp_path / "my_ops", python, "-m", "doit", "opsets=18")
