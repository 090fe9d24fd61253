"""A file of an operator that changes what judges it is refused, with its line, before anything is judged."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from opmatrix.commands import stages
from opmatrix.project import judging_code
from tests.support import double
from tests.support.forked import forked
from tests.support.projects import write_files

SPEC = """from dataclasses import replace; from tests.support import double

{}
SPEC = replace(double.SPEC, name="twice", lowerings=("custom",), tolerances={{"custom": double.TOLERANCES}})
"""
CASES = "from tests.support import double\n\n{}\nMODELS = double.OPERATOR.models\n"
REFERENCE = double.REFERENCE.replace("double", "twice")


@pytest.fixture(scope="module", autouse=True)
def recorded() -> Iterator[None]:
    """Record the modules of this process once, as a server does for all its steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging_code, "_record", judging_code._Record())
        judging_code.record()
        yield


def printed(
    root: Path, monkeypatch: pytest.MonkeyPatch, stage: str = "data", *, anew: bool = False, **files: str
) -> str:
    """Return what a stage prints in a fork, with lines of its own in some files. `anew`: it is run by hand, and records
    the modules itself."""
    texts = {"spec": SPEC, "cases": CASES, "reference": "\n\n{}\n" + REFERENCE}
    write_files(
        root,
        {"native/twice/kernel.h": "", "dodo.py": "", "pyproject.toml": "[tool.opmatrix]\nformat = 1\n"}
        | {f"ops/twice/{name}.py": text.format(files.get(name, "")) for name, text in texts.items()}
        | {f"{name}.py": text for name, text in files.items() if name not in texts},
    )
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(root)
    output = root / "printed"
    assert not forked(partial(_run, stage, anew=anew), output)
    # What several modules have is called as in one of them.
    found = re.sub(r"opmatrix\.[\w.]+\.EXACT\b", "opmatrix.data.compare.EXACT", output.read_text())
    return re.sub(r"opmatrix\.[\w.]+\.read\.__kw", "opmatrix.data.dataset.read.__kw", found)


def _run(stage: str, *, anew: bool) -> None:
    sys.stderr = sys.stdout
    if anew:
        judging_code._record = judging_code._Record()
    print("exit code", stages.main(["report", "--checked"] if stage == "report" else [stage, "twice"]))


COMPARE = "import opmatrix.data.compare as c"
# The lines, and what the message says is changed.
# At 71b51ad8: each was accepted, but "a name that was imported", "its code" and "a function inside NumPy" ended in a
# traceback, "a class of the standard library" in another refusal; the four of opmatrix.project.judging_code could not
# be tried.
CHANGES = {
    "a function that compares": (f"{COMPARE}\nc.compare = lambda *a, **k: None", "opmatrix.data.compare.compare"),
    "a name that was imported from it": ("import opmatrix.data.truth as t\nt.compare = print",
        "opmatrix.data.truth.compare"),
    "its code": (f"{COMPARE}\nc.compare.__code__ = (lambda actual, expected, *, tolerance: None).__code__",
        "opmatrix.data.compare.compare.__code__"),
    "its defaults": (f"{COMPARE}\nc.elementwise.__kwdefaults__ = dict(tolerance=None)",
        "opmatrix.data.compare.elementwise.__kwdefaults__"),
    "an entry of a table by types": ("import ast, opmatrix.sizes.expressions as e\ne._OPERATORS[ast.Mult] = max",
        "opmatrix.sizes.expressions._OPERATORS.Mult"),
    "a property": (f"{COMPARE}\nc.Comparison.ok = property(lambda self: True)", "opmatrix.data.compare.Comparison.ok"),
    "a method": (f"{COMPARE}\nsetattr(c.Comparison, '__init__', lambda self, **k: None)",
        "opmatrix.data.compare.Comparison.__init__"),
    "a constant": (f"{COMPARE}\nobject.__setattr__(c.EXACT, 'rtol', 1e9)", "opmatrix.data.compare.EXACT.rtol"),
    "a table": ("import opmatrix.data.reference as n\nn._ACCEPTED['i'] = 'fiu'", "opmatrix.data.reference._ACCEPTED.i"),
    "a name that hides a function of Python": (f"{COMPARE}\nvars(c)['max'] = min", "opmatrix.data.compare.max"),
    "a function of Python": ("import builtins\nbuiltins.max = min", "builtins.max"),
    "a function of NumPy": ("import numpy as np\nnp.abs = np.zeros_like", "numpy.abs"),
    "a function inside NumPy": ("import numpy._core.fromnumeric as f\nf._wrapreduction = print",
        "numpy._core.fromnumeric._wrapreduction"),
    "numpy.testing": ("import numpy.testing\nnumpy.testing.assert_allclose = lambda *a, **k: None",
        "numpy.testing.assert_allclose"),
    "the code of a function of NumPy": (
        "import numpy as np\nnp.isclose.__wrapped__.__code__ = (lambda *a, **k: True).__code__",
        "numpy._core.numeric.isclose.__code__"),
    "a function of the standard library": ("import math\nmath.isinf = print", "math.isinf"),
    "a class of the standard library": ("import pathlib\npathlib.Path.is_file = lambda self: True",
        "pathlib.Path.is_file"),
    "by unittest.mock": ("from unittest import mock\nmock.patch('opmatrix.data.compare.compare').start()",
        "opmatrix.data.compare.compare"),
    "a module": ("import sys, types\nsys.modules['opmatrix.data.compare'] = types.ModuleType('compare')",
        "sys.modules.opmatrix.data.compare"),
    "what writes verdicts": ("import opmatrix.records.verdict as v\nv.write = lambda *_: None",
        "opmatrix.records.verdict.write"),
    "what compares functions": ("import opmatrix.project.judging_code as j\nj.require_unchanged = lambda **_: None",
        "opmatrix.project.judging_code.require_unchanged"),
    "whether they are compared": ("import opmatrix.project.judging_code as j\nj._record.root = None",
        "opmatrix.project.judging_code._record"),
    "a keyword's default in place": ("import opmatrix.data.dataset as o\no.read.__kwdefaults__['judge'] = print",
        "opmatrix.data.dataset.read.__kwdefaults__.judge"),
    "a new method": (f"{COMPARE}\nc.Comparison.__getattribute__ = lambda self, name: True",
        "opmatrix.data.compare.Comparison.__getattribute__"),
    "a name of a package": ("import opmatrix.data as t\nt.evaluated = print", "opmatrix.data.evaluated"),
    "a function of NumPy that only others use": ("import numpy as np\nnp.allclose = lambda *a: True", "numpy.allclose"),
    "a method of a ufunc": ("import numpy as np\nnp.add.reduce = print", "numpy.add.reduce"),
    "the versions that are compared": (
        f"import opmatrix.project.judging_code as j; {COMPARE}; c.compare = print\n"
        "j._record.versions = [tag.value for tag in j._record.tags]",
        "opmatrix.project.judging_code._record",
    ),
    "what is remembered": ("import opmatrix.project.judging_code as j\nj._record.watched.popitem()",
        "opmatrix.project.judging_code._record"),
    "json": ("import json\njson.dumps = lambda *a, **k: '{}'", "json.dumps"),
    "what opens files": ("import builtins\nbuiltins.open = print", "builtins.open"),
}  # fmt: skip
# At 71b51ad8: each was accepted.
HOOKS = {
    "a trace function": ("import sys\nsys.settrace(lambda *_: None)", "traces the functions of this process"),
    "a profile function": ("import sys\nsys.setprofile(lambda *_: None)", "traces the functions of this process"),
    "an audit hook": ("import sys\nsys.addaudithook(lambda *_: None)",
        "lets code run in the middle of other code (sys.addaudithook)"),
    "a collection of garbage": ("import gc\ngc.callbacks.append(print)", f"{judging_code.OTHER} (gc.callbacks)"),
    "a signal": ("\nimport signal; signal.signal(signal.SIGALRM, print)", f"{judging_code.OTHER} (signal.signal)"),
    "a finder of modules": ("import sys\nsys.meta_path.insert(0, type('F', (), {'find_spec': lambda *_: None}))",
        "changes how modules are found (sys.meta_path)"),
    "a thread": ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
        "leaves a thread that runs"),
}  # fmt: skip
REMEDY = (
    ", which judges the operator, so that any kernel could pass. "
    "A file of an operator only defines values and functions of its own. Remove the change"
)


@pytest.mark.parametrize("file", ["spec", "cases"])
@pytest.mark.parametrize("change", [*CHANGES, *HOOKS])
def test_a_change(change: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what judges, or of what would run while others judge."""
    lines, said = (CHANGES | HOOKS)[change]
    found = printed(tmp_path, monkeypatch, **{file: lines})
    place = f"ops/twice/{file}.py:4: "
    assert (place if change in CHANGES else f"{place}{said}{REMEDY}") in found, found
    assert f" {said}{REMEDY}" in found and "exit code 3" in found
    assert not (tmp_path / "build/data").exists()


@pytest.mark.parametrize("file", ["spec", "cases"])
def test_a_change_of_what_reports(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process reports then, so that the report has the other operators."""
    lines = "import opmatrix.records.verdict as v\nv.read = lambda path: None"
    monkeypatch.setattr(stages.reexec, "again", lambda arguments: print("again:", *arguments))
    found = printed(tmp_path, monkeypatch, "report", anew=True, **{file: lines})
    assert "again: report" in found and "--checked" not in found
    assert f"ops/twice/{file}.py:4: replaces opmatrix.records.verdict.read{REMEDY}" in found, found
    assert not (tmp_path / "build/report").exists()


def test_a_function_in_a_closure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "import numpy as np\nnp.printoptions.__closure__[0].cell_contents = print"
    found = printed(tmp_path, monkeypatch, cases=lines)
    assert "ops/twice/cases.py:4: changes numpy" in found and ".__closure__" in found, found


# What `data` does not use when the reference is loaded, and what ends the reference itself.
NOT_OF_DATA = ("numpy.testing", "what writes verdicts", "a function of the standard library", "json")


@pytest.mark.parametrize("change", [change for change in CHANGES if change not in NOT_OF_DATA])
def test_a_change_by_the_reference(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, name = CHANGES[change]
    found = printed(tmp_path, monkeypatch, reference=lines)
    assert f"ops/twice/reference.py:4: changes {name}{REMEDY}" in found.replace("replaces", "changes")
    assert "exit code 3" in found


def test_a_change_by_a_module_that_the_declaration_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = printed(tmp_path, monkeypatch, spec="import patches", patches=f"{COMPARE}\nc.compare = print\n")
    assert f"patches.py:2: replaces opmatrix.data.compare.compare{REMEDY}" in found


@pytest.mark.parametrize(
    ("anew", "lines", "name"),
    [
        (True, "import opmatrix.judge.case_facts as f\nf.of_cases = lambda *a, **k: {}", "case_facts.of_cases"),
        (False, "import opmatrix.judge as j\nj.rounding = print", "rounding"),  # `data` needs no room judge
    ],
)
def test_a_change_in_a_module_that_a_stage_needs_later(
    anew: bool, lines: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first to import it is the declaration; a stage would take it as it is."""
    if anew:
        monkeypatch.delitem(sys.modules, "opmatrix.judge.case_facts", raising=False)
        monkeypatch.delattr("opmatrix.judge.case_facts", raising=False)
    found = printed(tmp_path, monkeypatch, anew=anew, cases=lines)
    assert f"ops/twice/cases.py:4: replaces opmatrix.judge.{name}{REMEDY}" in found


ALLOWED = {
    "modules of NumPy": "import numpy.fft, numpy.polynomial",
    "functions of its own": "import math, numpy as np\ndef compare(x): return abs(x)\nmax = np.maximum",
    "NumPy's settings": "import numpy as np\nnp.set_printoptions(precision=3)\nnp.random.seed(1)",
    "a module of opmatrix": "import opmatrix.judge.case_facts, opmatrix.bench.spec",
    "a class of its own": "import opmatrix.data.compare as c\nclass Mine(c.Comparison): ok = True",
    "a class of the standard library": "import enum, pathlib\nclass Mine(pathlib.PurePath): pass",
}


@pytest.mark.parametrize("file", ["spec", "cases", "reference"])
@pytest.mark.parametrize("what", ALLOWED)
def test_what_a_file_may_do(what: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(tmp_path, monkeypatch, **{file: ALLOWED[what]}) == "exit code 0\n"


@pytest.mark.parametrize("change", [change for change in CHANGES if change != "the versions that are compared"])
def test_it_is_found_without_the_versions_of_dictionaries(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in CPython 3.14, which has none."""
    monkeypatch.setattr(judging_code, "has_tags", lambda: False)
    lines, name = CHANGES[change]
    found = printed(tmp_path, monkeypatch, anew=True, cases=lines)
    assert f" {name}{REMEDY}" in found
