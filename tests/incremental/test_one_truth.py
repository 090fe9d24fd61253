"""The exit code, report.json, summary.md, junit.xml, the page and the terminal name the same failures.

The engine and the report are real, the other steps are fake. Each test lets steps of a small project fail.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from tests.incremental import conftest
from tests.incremental.conftest import Project

pytestmark = pytest.mark.incremental

LEGACY, DYNAMO = (f"torch2.13-{exporter}-opset18-ort1.31" for exporter in ("legacy", "dynamo"))
CELLS = {f"my_op-custom@{cell}" for cell in (LEGACY, DYNAMO)}
PARTS = ("schema", "nodes", "kernel", "search", "gradient")
CHECKS = {f"my_op-{part}@torch2.13" for part in PARTS}
AGREEMENT = "my_op-custom-agreement@torch2.13"

FAKE = (
    conftest.FAKE
    + """
from opmatrix.basics.errors import OpmatrixError
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records.step import CheckKey
from opmatrix.records import verdict
from opmatrix.records.verdict import CaseResult, CheckRecord, Verdict

def do_vary(*arguments):
    do_make("varied", *arguments)

def do_make(*arguments):
    Path(arguments[-1]).parent.mkdir(parents=True, exist_ok=True)
    Path(arguments[-1]).write_text(arguments[0])

def record(target, outcome, detail):
    name = Path(target).stem
    if "verify" in target:
        case = CaseResult(case="plain", model="static", outcome=outcome, detail=detail, error=1.0, tolerance_used=0.5)
        return Verdict(op="my_op", lowering="custom", cell=Cell.parse(name), outcome=outcome, detail=detail,
                       cases=(case,))
    check, _, torch = name.partition("@torch")
    lowering = "custom" if check == "agreement" else None
    return CheckRecord(op="my_op", check=check, lowering=lowering, torch=torch, outcome=outcome, detail=detail,
                       results=({"case": "plain"},))

def do_right(*arguments):
    verdict.write(Path(arguments[-1]), record(arguments[-1], "verified", ""))

def do_judge(*arguments):
    verdict.write(Path(arguments[-1]), record(arguments[-1], "failed", "y differs: 3 of 64 elements"))
    return 8

def do_mismatch(*arguments):
    verdict.write(Path(arguments[-1]), record(arguments[-1], "mismatched", "3 of 64 elements differ"))
    return 10

def do_lie(*arguments):
    do_right(*arguments)
    print("it fails after it wrote that all is well")
    return 1

def do_damage(*arguments):
    Path(arguments[-1]).write_text("{")

def do_other(*arguments):
    Path(arguments[-1]).write_text(Path("build/register/my_op/schema@torch2.13.json").read_text())

def do_prove_nothing(*arguments):
    import dataclasses
    found = record(arguments[-1], "verified", "")
    empty = {"cases": ()} if isinstance(found, Verdict) else {"results": ()}
    verdict.write(Path(arguments[-1]), dataclasses.replace(found, **empty))

def do_report_real(*asked):
    from opmatrix.report import write_report as report
    cells = [("my_op", "custom", Cell.parse(cell)) for cell in asked[:2]]
    torch = cells[0][2].torch
    checks = [CheckKey("my_op", part, torch=torch) for part in PARTS]
    checks.append(CheckKey("my_op", "agreement", "custom", torch))
    try:
        report.run(Paths(Path.cwd()), cells, checks)
    except OpmatrixError as error:
        print(error, file=sys.stderr)
        return error.exit_code
PARTS = ("schema", "nodes", "kernel", "search", "gradient")
"""
)
DODO = conftest.DODO.replace("import Step\n", "import CheckKey, Step\n").replace(
    "        steps.append(",
    "        if 'check' in step: step['check'] = CheckKey(*step['check'])\n        steps.append(",
)


@dataclass(frozen=True)
class Content:
    """The content of one output: how many records it has, and the names of the wrong ones."""

    cells: int
    checks: int
    wrong: frozenset[str]


ALL_RIGHT = Content(2, 6, frozenset())


class Planted:
    """A project of one operator with every kind of step. `run` lets one of them fail."""

    def __init__(self, root: Path) -> None:
        self.project = Project(root)
        self.project.write("fake.py", FAKE)
        self.project.write("dodo.py", DODO)
        self.project.write("lonely.txt", "")
        self.paths = Paths(root)
        self.torch = "2.13"

    def run(self, *arguments: str, **commands: str) -> Any:
        """Run doit. `commands` replaces those of steps, by task; a task is written with __ for its colon."""
        self.project.steps = list(self._steps({task.replace("__", ":"): name for task, name in commands.items()}))
        return self.project.doit(*arguments)

    def _steps(self, commands: dict[str, str]) -> Any:
        paths, root = self.paths, self.paths.root

        def step(task: str, command: str, path: Path, *reads: Path, **fields: Any) -> dict[str, Any]:
            group, _, name = task.partition(":")
            target = str(path.relative_to(root))
            inputs = [str(read.relative_to(root)) for read in reads]
            arguments = {"command": [commands.get(task, command), task, target], "reads": inputs, "writes": [target]}
            return {"group": group, "name": name, **arguments, **fields}

        def recorded(task: str, path: Path, *reads: Path, **fields: Any) -> dict[str, Any]:
            return step(task, "right", path, *reads, verdict=str(path.relative_to(root)), **fields)

        generated, library = paths.generated("my_op") / "x.h", paths.torch_library("my_op")
        data, drawn = paths.data_manifest("my_op"), paths.drawn_inputs("my_op")
        yield step("codegen:my_op", "make", generated)
        yield step("compile:my_op", "make", library, generated)
        yield step("data:my_op", "make", data)
        yield step("draw-inputs:my_op", "make", drawn)
        # No step with a record depends on this one, so the plan gives it a record.
        lonely = paths.failure_record("lonely", "codegen:lonely")
        yield step("codegen:lonely", "make", paths.generated("lonely") / "x.h", root / "lonely.txt",
                   check=["lonely", "codegen"], verdict=str(lonely.relative_to(root)))  # fmt: skip
        records = []
        for part in PARTS:
            path = paths.register_manifest("my_op", part, torch=self.torch)
            reads = {"kernel": [library, data], "search": [library, drawn]}.get(part, [generated])
            after = [] if part == "gradient" else ["compile:my_op"]
            check = ["my_op", part, None, self.torch]
            yield recorded(f"register:my_op-{part}@torch{self.torch}", path, *reads, after=after, check=check)
            records.append(path)
        manifests = []
        cells = [name.replace("2.13", self.torch) for name in (LEGACY, DYNAMO)]
        for name in cells:
            cell = Cell.parse(name)
            manifests.append(paths.manifest("my_op", "custom", cell))
            path = paths.verdict("my_op", "custom", cell)
            yield step(f"export:my_op-custom@{cell.export_name}", "make", manifests[-1], generated)
            yield recorded(f"verify:my_op-custom@{name}", path, manifests[-1], library, data)
            records.append(path)
        path = paths.agreement("my_op", "custom", torch=self.torch)
        check = ["my_op", "agreement", "custom", self.torch]
        yield recorded(f"export:my_op-custom-agreement@torch{self.torch}", path, *manifests, check=check)
        report = step("report", "report_real", paths.report_data, *records, path, after=["codegen:lonely"])
        report["command"] = ["report_real", *cells]
        yield report | {"discovered_inputs": str(paths.verdict_list.relative_to(root))}

    def read(self) -> dict[str, Content]:
        """Return the content of each file of the report."""
        data, xml, summary, html = self.paths.report_files
        return {"json": in_json(data), "junit": in_junit(xml), "summary": in_summary(summary), "page": in_page(html)}


def in_json(path: Path) -> Content:
    found = json.loads(path.read_text())
    names = {f"{c['op']}-custom@torch{c['torch']}-{c['exporter']}-opset{c['opset']}-ort{c['ort']}": c
             for c in found["cells"]}  # fmt: skip
    for c in found["checks"]:
        words = "-".join(filter(None, (c["op"], c["lowering"], c["check"])))
        names[f"{words}@torch{c['torch']}" if c["torch"] else words] = c
    wrong = frozenset(name for name, c in names.items() if c["outcome"] in ("failed", "mismatched"))
    counts, checks = found["counts"], found["check_counts"]
    assert sum(c["failed"] + c["mismatched"] for c in (counts, checks)) == len(wrong)
    return Content(counts["cells"], checks["checks"], wrong)


def in_junit(path: Path) -> Content:
    root = ElementTree.fromstring(path.read_text())
    found = [*root.iter("testcase")]
    wrong = {_name(case) for case in found if {child.tag for child in case} & {"error", "failure"}}
    for part in (root, *root.iter("testsuite")):
        assert int(part.get("tests", 0)) == len([*part.iter("testcase")])
    assert int(root.get("errors", 0)) + int(root.get("failures", 0)) == len(wrong)
    cells = sum("-opset" in case.get("name", "") for case in found)
    return Content(cells, len(found) - cells, frozenset(wrong))


def _name(case: ElementTree.Element) -> str:
    """Return the name of the cell or the check in the other files."""
    of, name = case.get("classname", "").replace(".", "-"), case.get("name", "")
    return name if of == name else f"{of}{'@' if '-opset' in name else '-'}{name}"


TOTALS = re.compile(r"(\d+) cells: ([\w, ]+); (\d+) checks: ([\w, ]+)$", re.MULTILINE)


def in_totals(text: str) -> tuple[int, int, int]:
    """Return the numbers of cells, of checks, and of wrong ones of both."""
    found = TOTALS.search(text)
    assert found, text
    wrong = sum(
        int(n) for part in (found[2], found[4]) for n in re.findall(r"(\d+) (?:failed|mismatched|not run)", part)
    )
    return int(found[1]), int(found[3]), wrong


def in_summary(path: Path) -> Content:
    text = path.read_text()
    cells, checks, wrong = in_totals(text.splitlines()[0])
    listed = text.partition("### What is wrong")[2].partition("### ")[0]
    names = frozenset(re.findall(r"^- `(\S+)`$", listed, re.MULTILINE))
    assert wrong == len(names)
    return Content(cells, checks, names)


def data_of(page: Path) -> Any:
    return json.loads(page.read_text().partition('id="data">')[2].partition("</script>")[0])


def in_page(path: Path) -> Content:
    found = data_of(path)

    def column(name: str) -> list[Any]:
        values = found["cells"][name]
        return [values["values"][row] for row in values["rows"]]

    outcomes = column("outcome")
    cells = zip(column("op"), column("torch"), column("exporter"), column("opset"), column("ort"), strict=True)
    names = ["{}-custom@torch{}-{}-opset{}-ort{}".format(*cell) for cell in cells]
    named = [*zip(names, outcomes, strict=True), *((check["name"], check["outcome"]) for check in found["checks"])]
    wrong = frozenset(name for name, outcome in named if outcome in ("failed", "mismatched"))
    return Content(len(outcomes), len(found["checks"]), wrong)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A project that is up to date. Each test plants its own failure in the project that the previous test left."""
    made = Planted(tmp_path_factory.mktemp("truth"))
    done = made.run()
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_a_run_without_a_failure(planted: Planted) -> None:
    assert planted.run().returncode == 0
    assert set(planted.read().values()) == {ALL_RIGHT}
    found = data_of(planted.paths.report_files[-1])
    assert {"compile", "register", "verify"} <= {*found["seconds"]["my_op"]}, "the steps of this run too"
    assert len(found["history"]) == 1


REGISTER = "register:my_op-{}@torch2.13"
VERIFY = {f"my_op-custom@{cell}": f"verify:my_op-custom@{cell}" for cell in (LEGACY, DYNAMO)}
RECORDED = {f"my_op-{part}@torch2.13": REGISTER.format(part) for part in PARTS} | VERIFY
RECORDED[AGREEMENT] = f"export:{AGREEMENT}"
WITH_LIBRARY = CELLS | CHECKS - {"my_op-gradient@torch2.13"}
NODES, KERNEL, SEARCH = (f"my_op-{part}@torch2.13" for part in ("nodes", "kernel", "search"))
ON_LEGACY, ON_DYNAMO = VERIFY
EXPORT = "export:my_op-custom@torch2.13-dynamo-opset18"
# By name: the commands of the steps that fail, by task, and the names of the wrong cells and checks.
FAILURES: dict[str, tuple[dict[str, str], set[str]]] = {
    "codegen": ({"codegen:my_op": "throw"}, CELLS | CHECKS | {AGREEMENT}),
    "a step that nothing depends on": ({"codegen:lonely": "throw"}, {"lonely-codegen"}),
    "compile": ({"compile:my_op": "say"}, WITH_LIBRARY),
    "compile dies": ({"compile:my_op": "segfault"}, WITH_LIBRARY),
    "data": ({"data:my_op": "throw"}, CELLS | {KERNEL}),
    "draw-inputs": ({"draw-inputs:my_op": "throw"}, {SEARCH}),
    "export": ({EXPORT: "throw"}, {ON_DYNAMO, AGREEMENT}),
    "each finds a fault": (dict.fromkeys(RECORDED.values(), "judge"), {*RECORDED}),
    "verify finds a mismatch": ({VERIFY[ON_DYNAMO]: "mismatch"}, {ON_DYNAMO}),
    "dies": (dict.fromkeys([RECORDED[KERNEL], VERIFY[ON_DYNAMO]], "segfault"), {KERNEL, ON_DYNAMO}),
    "raises": (dict.fromkeys([RECORDED[KERNEL], VERIFY[ON_DYNAMO]], "throw"), {KERNEL, ON_DYNAMO}),
    "fails after a good record": (dict.fromkeys(RECORDED.values(), "lie"), {*RECORDED}),
    "writes no record": (dict.fromkeys(RECORDED.values(), "nothing"), {*RECORDED}),
    "writes a damaged record": (dict.fromkeys(RECORDED.values(), "damage"), {*RECORDED}),
    "writes another record": ({RECORDED[NODES]: "other", VERIFY[ON_LEGACY]: "other"}, {NODES, ON_LEGACY}),
    "checks nothing": (dict.fromkeys(RECORDED.values(), "prove_nothing"), {*RECORDED}),
}
# These steps succeed: the report finds the faults of their records.
FOUND_BY_REPORT = {"damage", "other", "prove_nothing"}


@pytest.mark.parametrize("name", FAILURES)
def test_every_output_names_the_same_failures(planted: Planted, name: str) -> None:
    commands, wrong = FAILURES[name]
    done = planted.run("--continue", **{task.replace(":", "__"): command for task, command in commands.items()})
    said = done.stdout
    assert done.returncode != 0
    checks = 6 + len(wrong & {"lonely-codegen"})
    assert planted.read() == dict.fromkeys(("json", "junit", "summary", "page"), Content(2, checks, frozenset(wrong)))
    assert in_totals(said) == (2, checks, len(wrong))
    for name in wrong:
        line = rf"^([✗≠⊘X!=-]+ (failed|mismatched|not run)|  also(.*,)?) {re.escape(name)}(,.*)?$"
        assert re.search(line, said, re.MULTILINE), name
    failed = 1 if {*commands.values()} & FOUND_BY_REPORT else len(commands)  # then only the report fails
    last = said.splitlines()[-1]
    assert last.endswith(f" {failed} failed") or f" {failed} failed, " in last, last
    assert "\nFAILED " in said


@pytest.mark.parametrize("arguments", [["my_op"], [REGISTER.format("kernel")]])
def test_the_summary_of_a_run_without_a_report_names_what_failed(planted: Planted, arguments: list[str]) -> None:
    assert planted.run().returncode == 0
    wrong = {REGISTER.format("kernel").replace(":", "__"): "judge"}
    done = planted.run("--continue", *arguments, **wrong)
    said, summary = done.stdout.split("\nFAILED ")
    assert done.returncode != 0
    assert "\n  register:my_op-kernel@torch2.13 failed" in summary and " 1 failed" in summary.splitlines()[-1]
    assert "build/report/ is of an earlier run; `doit` writes it with these results\n" in said
    assert planted.run("--continue", **wrong).returncode != 0
    assert planted.read()["json"].wrong == {"my_op-kernel@torch2.13"}


def test_a_failure_that_is_repaired_leaves_no_record(planted: Planted) -> None:
    """Also a missing input that is restored: the step does not run again then, for it is up to date."""
    source = planted.paths.root / "lonely.txt"
    planted.run("--continue", codegen__lonely="throw")
    assert planted.run().returncode == 0
    assert set(planted.read().values()) == {ALL_RIGHT}
    source.unlink()
    assert planted.run("--continue").returncode != 0
    assert planted.read()["json"].wrong == {"lonely-codegen"}
    source.touch()
    assert planted.run().returncode == 0
    assert set(planted.read().values()) == {ALL_RIGHT}


def test_records_of_earlier_runs_are_in_the_report_while_they_are_valid(tmp_path: Path) -> None:
    """A run in torch 2.13 plans no step of torch 2.9: its records are valid if their inputs are as they were."""
    planted = Planted(tmp_path)
    planted.torch = "2.9"
    assert planted.run().returncode == 0
    planted.torch = "2.13"
    done = planted.run()
    assert "\nfrom earlier runs, not asked for in this one: 2 cells: 2 verified; 6 checks: 6 verified\n" in done.stdout
    assert set(planted.read().values()) == {Content(4, 12, frozenset())}
    # The cells and the kernel's check read the data; the other checks of torch 2.9 do not.
    done = planted.run(data__my_op="vary")
    assert "out of date: my_op-kernel@torch2.9, torch2.9-dynamo-opset18-ort1.31" in done.stdout
    assert set(planted.read().values()) == {Content(2, 11, frozenset())}


def test_a_failed_record_of_an_earlier_run_stays(tmp_path: Path) -> None:
    planted = Planted(tmp_path)
    planted.torch = "2.9"
    assert planted.run("--continue", **{"register__my_op-nodes@torch2.9": "judge"}).returncode != 0
    planted.torch = "2.13"
    assert planted.run().returncode == 0, "what was asked for is verified"
    assert set(planted.read().values()) == {Content(4, 12, frozenset({"my_op-nodes@torch2.9"}))}
