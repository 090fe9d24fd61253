"""Versions without a row: used as the nearest older one, named in a line, and measured into pyproject.toml. The output
of a probe: the measured row, and every difference from the declared one.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.errors import ProbeError, UsageError
from opmatrix.commands import probe
from opmatrix.engine.tasks import StepTask
from opmatrix.project import cells, measured, settings
from opmatrix.project.cells import ORT, TORCH, Ort, Torch, ir_version
from opmatrix.project.measured import Export, ort_differences, source, torch_differences, torch_row
from opmatrix.project.paths import Paths
from opmatrix.project.settings import Versions, chosen_cells, installed
from opmatrix.records.step import Step

HEAD = "[tool.opmatrix]\nformat = 1\n"
NEWEST = [*ORT][-1]


@pytest.fixture(autouse=True)
def shipped_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the rows of this process back after each test."""
    monkeypatch.setattr(cells, "_rows", cells.rows())


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "pyproject.toml").write_text(
        HEAD + "[tool.opmatrix.opsets]\nlegacy = [18]\ndynamo = [18, 26]\nnode = []\n"
    )
    return Paths(tmp_path)


def table(paths: Paths, text: str) -> Paths:
    path = paths.root / "pyproject.toml"
    path.write_text(f"{path.read_text()}\n[tool.opmatrix.matrix]\n{text}\n")
    return paths


def other(**versions: str) -> Versions:
    return replace(installed(), **versions)


# What is used.


def test_newer_versions_and_those_between_two_rows_are_used_and_named(paths: Paths) -> None:
    versions = other(torch="2.14.0", onnxruntime="1.30.0")
    line = measured.unmeasured(measured.use_rows(paths, versions), versions)
    assert "torch 2.14 is used as 2.13, onnxruntime 1.30 is used as 1.24" in line
    versions = other(torch="2.99.1+cpu", onnxruntime="1.98.0")
    found = measured.use_rows(paths, versions)
    opsets = "[tool.opmatrix.opsets]\nlegacy = [18]\ndynamo = []\nnode = [18]\n"
    (paths.root / "pyproject.toml").write_text(HEAD + opsets)
    assert [str(c) for c in chosen_cells(paths, versions=versions)] == [
        "torch2.99-legacy-opset18-ort1.98",
        "node-opset18-ort1.98",
    ]
    assert measured.unmeasured(found, versions) == (
        f"not measured: torch 2.99 is used as {[*TORCH][-1]}, onnxruntime 1.98 is used as {NEWEST}. "
        "To measure: opmatrix probe"
    )


@pytest.mark.parametrize(("package", "version", "known"), [("onnx", "1.99.0", "1.23"), ("onnxscript", "0.99.1", "0.7")])
def test_a_package_without_rows_is_named(paths: Paths, package: str, version: str, known: str) -> None:
    versions = other(**{package: version})
    short = version.rpartition(".")[0]
    line = f"not measured: {package} {short} is used as {known}. To measure: opmatrix probe"
    assert measured.unmeasured(measured.read(paths), versions) == line
    assert measured.newer(measured.read(paths), versions) == {package: f'"{short}"'}
    assert measured.unmeasured(measured.read(table(paths, f'{package} = "{short}"')), versions) == ""


def test_the_pinned_versions_are_measured_and_others_are_named(
    paths: Paths, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer Python, and a version that is too old."""
    pins = (root / "requirements/main.in").read_text()
    assert all(f"\n{name}=={cells.NEWEST[name]}." in pins for name in ("onnx", "onnxscript"))
    assert measured.unmeasured(measured.use_rows(paths, installed()), installed()) == ""
    monkeypatch.setattr(measured.sys, "version_info", (3, 99, 0))
    assert "python 3.99 is used as 3.13" in measured.unmeasured(measured.read(paths), installed())
    with pytest.raises(UsageError, match=r"^ONNX Runtime 1\.15 is too old; allowed: 1\.16 and newer\. .*opmatrix doc"):
        measured.use_rows(paths, other(onnxruntime="1.15.1"))


def test_the_rows_of_the_project_count(paths: Paths) -> None:
    table(paths, 'torch."2.99" = { legacy = [7, 20], dynamo = [18, 26], label = [21, 23] }\n'
                 'ort."1.98" = { ir = 14, opset = 26 }\nort."1.31" = { ir = 12, opset = 25 }')  # fmt: skip
    versions = other(torch="2.99.0", onnxruntime="1.98.0")
    assert measured.unmeasured(measured.use_rows(paths, versions), versions) == ""
    assert "torch2.99-dynamo-opset26-ort1.98" in map(str, chosen_cells(paths, versions=versions))
    why = cells.why_unreadable(cells.Cell.parse("node-opset26-ort1.31"))
    assert why == "ONNX Runtime 1.31 reads opsets up to 25, not 26"
    row = Torch(legacy=range(7, 21), dynamo=range(18, 27), label=range(21, 24), python="")
    assert cells.unshipped_rows("2.99", "1.16") == [str(row)]
    assert cells.unshipped_rows("2.13", "1.18") == []


def test_a_version_that_the_project_pins_can_be_chosen(paths: Paths) -> None:
    (paths.root / "requirements").mkdir()
    for name in ("torch2.14.txt", "torch2.14-cpu.txt", "torch.txt"):
        (paths.root / "requirements" / name).touch()
    measured.use_rows(paths, installed())
    assert "2.14" in settings.with_environment(paths)[0] and "torch2.14" in cells.environment_names()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ortt.x = 1", "ortt: unknown setting, allowed: torch, ort, onnx, onnxscript, python; did you mean 'ort'"),
        ("ort = 1", "ort: found 1, allowed: rows of minor versions"),
        ('ort."1.33.0" = {}', "ort: found .*, allowed: rows of minor versions"),
        ('ort."1.33" = { ir = 14 }', r'ort\."1\.33": found .*, allowed: a row such as { ir = 14, opset = 27 }'),
        ('ort."1.33" = { ir = 14, opset = "27" }', r'ort\."1\.33": found .*, allowed: a row such as'),
        ('ort."1.33" = { ir = 14, opset = 27, pi = 3 }', "ort.*: found .*, allowed: a row with ir, opset"),
        ('torch."2.16" = { dynamo = [18, 25] }', r"torch.*: found .*, allowed: a row with legacy = \[7, 20\]"),
        ('torch."2.16" = { legacy = [20, 7] }', r'torch\."2\.16": legacy: found .*, allowed: the first and'),
        ('torch."2.16" = { legacy = [18] }', r'torch\."2\.16": legacy: found .*, allowed: the first and'),
        ('torch."2.16" = 3', r'torch\."2\.16": found 3, allowed: a row with legacy, dynamo, label'),
        ("onnx = 1.24", 'onnx: found 1.24, allowed: a minor version such as "1.24"'),
    ],
)  # fmt: skip
def test_a_mistake_in_the_table_is_an_error(paths: Paths, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=rf"^pyproject\.toml: \[tool\.opmatrix\.matrix\]: {message}"):
        measured.read(table(paths, text))


def test_the_table_is_found_in_every_spelling(tmp_path: Path) -> None:
    """One that cannot be edited stays as it is."""
    inline = "[tool]\nopmatrix = { matrix = { onnx = '1.24' } }\n"
    for text in (
        "[tool.opmatrix]\nmatrix.onnx = '1.24'\n",
        "[tool.opmatrix]\n'matrix' = { onnx = '1.24' }\n",
        "[ tool . opmatrix . matrix ]\nonnx = '1.24'\n",
        inline,
    ):
        (tmp_path / "pyproject.toml").write_text(text)
        assert measured.read(Paths(tmp_path)).newest == {"onnx": "1.24"}
    with pytest.raises(UsageError, match=r'does not edit\. Add to it:\nort\."1\.33" = { ir = 14, opset = 27 }\nonnx'):
        measured.write(Paths(tmp_path), {**LINES, "onnx": '"1.25"'})
    assert (tmp_path / "pyproject.toml").read_text() == inline


# What `opmatrix probe` writes.

EARLIER = """[tool.opmatrix.matrix] # mine
# kept
ort."1.33" = { ir = 1, opset = 2 }
ort."1.40" = { ir = 1, opset = 2 }
"""
LINES = {'ort."1.33"': "{ ir = 14, opset = 27 }", "onnx": '"1.24"'}


@pytest.mark.parametrize(
    "before",
    [
        "",
        HEAD,
        HEAD.rstrip("\n"),
        HEAD + EARLIER + "\n[tool.x]\na = 1\n",
        HEAD + "[tool.opmatrix.matrix]\n[[tool.x]]\nonnx = 3\n",
        HEAD + '[tool.opmatrix.matrix]\nonnx = "1.22"',
    ],
)
def test_a_row_is_written_and_all_else_stays(tmp_path: Path, before: str) -> None:
    paths, path = Paths(tmp_path), tmp_path / "pyproject.toml"
    if before:
        path.write_text(before)
    measured.write(paths, LINES)
    found = measured.read(paths)
    assert found.ort["1.33"] == Ort(ir=14, opset=27, python=cells.NEWEST["python"]) and found.newest == {"onnx": "1.24"}
    after, was = tomllib.loads(path.read_text()), tomllib.loads(before)
    for text in (line for line in before.splitlines() if line.startswith(("#", "[tool", "a =", 'ort."1.40"'))):
        assert text in path.read_text()
    after["tool"]["opmatrix"].pop("matrix")
    was.setdefault("tool", {}).setdefault("opmatrix", {}).pop("matrix", None)
    assert after == was
    once = path.read_text()
    measured.write(paths, LINES)
    assert path.read_text() == once


def test_a_written_row_is_read_again() -> None:
    for row in (*TORCH.values(), *ORT.values()):
        text = f"x = {measured.as_toml(row)}"
        given = tomllib.loads(text)["x"]
        read = measured._torch("x", given) if isinstance(row, Torch) else measured._ort("x", given)
        reason = {"no_dynamo": row.no_dynamo} if isinstance(row, Torch) else {}
        assert replace(read, python=row.python, **reason) == row


# The command, without the steps that measure.


@pytest.fixture
def command(paths: Paths) -> Any:
    made = probe.Probe.__new__(probe.Probe)
    made.__dict__["_paths"] = paths
    return made


def probed(command: Any, ort: dict[str, int], version: str) -> list[probe.Probed]:
    files = [command._paths.root / name for name in ("limits.json", "dtypes.json")]
    for path, content in zip(files, (ort, {"float32": {"ort": ""}, "uint16": {"ort": "no such type"}}), strict=True):
        path.write_text(json.dumps(content))
    step = Step(group="probe", name=f"ort{version}", command=("probe", "ort"), writes=tuple(map(str, files)))
    task = StepTask.__new__(StepTask)
    task.step = step
    command.task_list = [task]
    return [*command._probed()]


def test_a_new_version_is_written_into_the_project(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command._write(probed(command, {"ir": 15, "opset": 30}, "1.98"))
    assert measured.read(command._paths).ort == {"1.98": Ort(ir=15, opset=30, python=cells.NEWEST["python"])}
    said = capsys.readouterr().out
    assert 'wrote in pyproject.toml, [tool.opmatrix.matrix]:\n  ort."1.98" = { ir = 15, opset = 30 }\n' in said
    assert "note: ONNX Runtime, 1.98: uint16 is not supported: no such type; declared: from 1.16 on" in said


def test_a_wrong_row_is_written_over_and_a_right_one_is_not(command: Any) -> None:
    before = (command._paths.root / "pyproject.toml").read_text()
    row = ORT[NEWEST]
    command._write(probed(command, {"ir": row.ir, "opset": row.opset}, NEWEST))
    assert (command._paths.root / "pyproject.toml").read_text() == before
    command._write(probed(command, {"ir": 99, "opset": 30}, NEWEST))
    assert measured.read(command._paths).ort[NEWEST].ir == 99


def test_in_a_checkout_a_difference_is_an_error(command: Any, root: Path) -> None:
    assert measured.is_checkout(Paths(root)) and not measured.is_checkout(command._paths)
    with pytest.raises(ProbeError) as raised:
        probe._require_declared(probed(command, {"ir": 99, "opset": 30}, "1.98"))
    assert str(raised.value).splitlines() == [
        'ort."1.98" has no row; measured: "1.98": Ort(ir=99, opset=30)',
        "Correct pipeline/opmatrix/project/cells.py",
        "ONNX Runtime, 1.98: uint16 is not supported: no such type; declared: from 1.16 on",
        "Correct SINCE in pipeline/opmatrix/project/dtypes.py",
    ]
    with pytest.raises(ProbeError, match=f"^ONNX Runtime {NEWEST} reads IR versions up to 99, declared: "):
        probe._require_declared(probed(command, {"ir": 99, "opset": 30}, NEWEST))


def declared(version: str) -> list[Export]:
    """Return the probe's result for a torch that matches its row."""
    row = TORCH[version]
    found = [Export(exporter="legacy", opset=o, ir=ir_version("legacy", o)) for o in row.legacy]
    found += [Export(exporter="legacy", opset=o, ir=9, label=True) for o in row.label]
    found.append(Export(exporter="legacy", opset=24, wrong="it raised ValueError"))
    found.append(Export(exporter="dynamo", opset=17, wrong="it wrote opset 18"))
    return found + [Export(exporter="dynamo", opset=o, ir=10) for o in row.dynamo]


def differences(version: str, found: Sequence[Export]) -> list[str]:
    return torch_differences(version, found, TORCH[version])


def test_each_difference_from_the_declared_row_is_named() -> None:
    """A legal opset that does not run, an illegal one that runs, a label and an IR version."""
    assert differences("2.13", declared("2.13")) == differences("1.13", declared("1.13")) == []
    found = declared("2.13")
    found[-1] = replace(found[-1], wrong="it wrote opset 18")
    assert differences("2.13", found) == [
        "torch 2.13, dynamo exporter, opset 25: declared legal, and it wrote opset 18",
        'The row that was measured: "2.13": Torch(legacy=range(7, 21), dynamo=range(18, 25), label=range(21, 24))',
    ]
    found = [replace(one, wrong="", ir=10) if one.wrong else one for one in declared("2.13")]
    assert [line for line in differences("2.13", found) if "illegal" in line] == [
        "torch 2.13, legacy exporter, opset 24: declared illegal, and it runs",
        "torch 2.13, dynamo exporter, opset 17: declared illegal, and it runs",
    ]
    found = declared("2.13")
    found[0], found[14] = replace(found[0], ir=4), replace(found[14], label=False, wrong="it raised ValueError")
    assert differences("2.13", found)[:2] == [
        "torch 2.13, legacy exporter, opset 7: IR version 4, declared: 3",
        "torch 2.13, legacy exporter, opset 21: its nodes are not of an older opset; declared otherwise",
    ]
    assert all(ort_differences(version, row, row) == [] for version, row in ORT.items())
    lines = ort_differences("1.18", Ort(ir=10, opset=22), ORT["1.18"])
    assert lines[0] == "ONNX Runtime 1.18 reads opsets up to 22, declared: 21"


def test_the_measured_row() -> None:
    """Of opsets with gaps it has the longest part."""
    row = torch_row(declared("2.13"))
    assert row == TORCH["2.13"]
    assert source("2.17", row) == '"2.17": Torch(legacy=range(7, 21), dynamo=range(18, 26), label=range(21, 24))'
    assert source("1.33", Ort(ir=13, opset=27)) == '"1.33": Ort(ir=13, opset=27)'
    assert source("1.13", torch_row(declared("1.13"))) == '"1.13": Torch(legacy=range(7, 18), no_dynamo=...)'
    assert torch_row(one for one in declared("2.13") if one.opset not in (9, 20, 25)).legacy == range(10, 20)
    assert torch_row(one for one in declared("2.13") if one.opset not in (21, 22)).dynamo == range(23, 26)
