"""Planted mutants of each kind, tried as `doit mutate` tries them: what becomes of each, and what is tried again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace

import pytest

from opmatrix.addons.mutate import score, tryout
from opmatrix.addons.mutate.mutant import Mark, Mutant
from opmatrix.addons.mutate.result import Dependencies, Result
from opmatrix.addons.mutate.run import Campaign, OriginalError
from opmatrix.declaration.load import load_operator
from opmatrix.engine.lock import hold
from opmatrix.project.paths import Paths
from opmatrix.project.settings import chosen_cells, installed
from opmatrix.toolchain.find import find_toolchain
from tests.support.projects import LIMITS, Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

NAME = "planted"
KERNEL = "native/planted/kernel.h"
ORT = "build/generated/planted/ort.cc"
SETTINGS = """
[tool.doit]
loader = "opmatrix"
[tool.opmatrix]
format = 1
[tool.opmatrix.opsets]
legacy = [17, 18]
dynamo = []
node = []
"""
# By name: the file, the text, what is in its place; the outcome, the gate with the part, and words of the reason.
PLANTED: Mapping[str, tuple[str, str, str, str, str, str]] = {
    "killed by cases": (KERNEL, "2 * x.data[i]", "3 * x.data[i]", "killed", "register kernel", "elements differ"),
    "killed by search": (KERNEL, "n == 123456", "n == 5", "killed", "register search", "elements differ"),
    "killed by ONNX Runtime": (
        ORT, "(x.view<float>(), w", "(w.view<float>(), x", "killed", "verify", "planted-custom-"),
    "killed by sanitizers": (KERNEL, "n < -4", "n > 0", "killed", "sanitize", "AddressSanitizer"),
    "equivalent": (KERNEL, "n + 0", "n - 0", "equivalent", "compile", ""),
    "does not compile": (KERNEL, "n + 0", "n + nothing", "invalid", "compile", "nothing"),
    "hangs": (KERNEL, "n < -2", "n > -2", "stopped", "register", "CPU seconds"),
    "takes all memory": (KERNEL, "n < -3", "n > -3", "stopped", "register", "MB of memory"),
    "crashes": (KERNEL, "n < -1", "n > -1", "killed", "register", "died of SIGABRT after"),
    "survives": (KERNEL, "n > 1234567890123", "n >= 1234567890123", "survived", "", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Return the project, verified in one cell of two opsets."""
    project = Project.of("planted", tmp_path_factory.mktemp("mutants"))
    (project.root / "pyproject.toml").write_text(f"{SETTINGS}\n{LIMITS}")
    project.passes(NAME)
    return project.paths


def mutant(paths: Paths, path: str, before: str, after: str) -> Mutant:
    text = (paths.root / path).read_text()
    assert text.count(before) == 1
    start = len(text.partition(before)[0].encode())
    return Mutant(
        path=path, kind="planted", function=NAME, line=text[:start].count("\n") + 1, start=start,
        end=start + len(before.encode()), before=before, after=after, context=before,
    )  # fmt: skip


def campaign(paths: Paths, lock: int, tried: list[str], *, megabytes: float = 1000) -> Campaign:
    operator = load_operator(paths, NAME)
    cells = operator.cells(chosen_cells(paths))
    toolchain, versions = find_toolchain(os.environ), installed()
    return Campaign(
        paths=paths, operator=operator, cells=cells, jobs=2, lock=lock, megabytes=megabytes,
        dependencies=Dependencies(paths=paths, operator=operator, cells=cells, toolchain=toolchain, versions=versions),
        said=lambda mutant, result: tried.append(mutant.key),
    )  # fmt: skip


def run(paths: Paths, mutants: list[Mutant], tried: list[str]) -> dict[str, Result]:
    with hold(paths.lock) as lock:
        return campaign(paths, lock, tried).run(mutants)


First = tuple[dict[str, Mutant], dict[str, Result], list[str]]


@pytest.fixture(scope="module")
def first(built: Paths) -> First:
    """Return the mutants, their results, and the keys of those that were tried, of a first run."""
    tried: list[str] = []
    mutants = {name: mutant(built, *row[:3]) for name, row in PLANTED.items()}
    before = contents(built)
    # A virtual machine gives fresh memory at 150 MB per CPU second, so that the limit of time came first.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tryout, "LEAST_SECONDS", 60)
        run(built, [mutants["takes all memory"]], tried)
    results = run(built, [*mutants.values()], tried)
    assert contents(built) == before, "a mutant was compiled in the build"
    return mutants, results, tried


def contents(paths: Paths) -> dict[str, bytes]:
    """Return all files of the project but those of doit mutate, the logs, and the inputs that kill survivors."""
    left_out = ("build/mutate", "build/log", "build/hypothesis", "build/lock")
    found = [path for path in paths.root.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    names = {path.relative_to(paths.root).as_posix(): path for path in found}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(left_out)}


@pytest.mark.parametrize("name", PLANTED)
def test_what_becomes_of_a_planted_mutant(name: str, first: First) -> None:
    mutants, results, _ = first
    *_, outcome, gate, why = PLANTED[name]
    found = results[mutants[name].key]
    assert found.outcome == outcome and gate in score.shown_gate(found) and why in found.why, found


def test_each_mutant_is_tried_once_and_again_where_another_case_may_kill_it(built: Paths, first: First) -> None:
    """What a case killed is dead, and what does not compile needs no case."""
    mutants, results, tried = first
    assert sorted(tried) == sorted(results)
    again: list[str] = []
    assert run(built, [*mutants.values()], again) == results and again == []
    assert results[mutants["killed by cases"].key].case == "three"
    manifest = built.data_manifest(NAME)
    with edited(manifest, before := manifest.read_text(), before + " "):  # nothing is run here
        asked = campaign(built, -1, [])
        asked._results = results
        repeated = {name for name, one in mutants.items() if not asked._is_known(one)}
    assert repeated == {
        "killed by ONNX Runtime", "killed by sanitizers", "hangs", "takes all memory", "crashes", "survives",
    }  # fmt: skip


def test_an_operator_that_does_not_pass_its_own_gates_is_one_sentence(built: Paths) -> None:
    """A build of an earlier kernel: every mutant would differ from it."""
    message = r"^build/compile/planted is not what .*kernel\.h compiles to\. Run: doit"
    with edited(built.root / KERNEL, "2 * x.data[i]", "2.5f * x.data[i]"), pytest.raises(OriginalError, match=message):
        run(built, [mutant(built, KERNEL, "n + 0", "n + 1")], [])


def test_marks_and_score(built: Paths, first: First) -> None:
    mutants, results, _ = first
    asked = campaign(built, -1, [])
    tried = score.Tried(mutants=[*mutants.values()], results=results, marks={}, total=10, seed="0")
    found = score.measure(asked, tried)
    assert (found.killed, found.survived, found.equivalent, found.invalid, found.stopped) == (5, 1, 1, 1, 2)
    assert found.score == 5 / 6
    shown = "\n".join(score.report(asked, tried, found, cpu=12.3))
    assert f"--- {KERNEL}:" in shown and "+  if (n >= 1234567890123) y.data[0] = 1;" in shown
    assert "Add a case that tells it from the code as it is" in shown and "ops/planted/mutants.toml" in shown
    assert shown.endswith("score of planted: 83.3%")
    key = mutants["survives"].key
    marked = replace(tried, marks={key: Mark(mutant=key, change="c", reason="no array is so large")})
    found = score.measure(asked, marked)
    assert (found.survived, found.marked, found.score) == (0, 1, 1.0)
    assert "no array is so large" in "\n".join(score.report(asked, marked, found, cpu=0))


def test_the_command_writes_the_score_and_the_report_shows_it(built: Paths) -> None:
    """The kernel has lines without effect, so that mutants survive: the score is below a minimum of 1."""
    pytest.importorskip("tree_sitter_cpp")
    project = Project(built.root)
    done = project.passes("mutate", "--count", "6", NAME)
    assert "planted: 6 mutants tried, of " in done.stdout and "score of planted: " in done.stdout
    found = json.loads(built.mutation_score(NAME).read_text())
    assert found["tried"] == 6 and found["survived"] == len(found["survivors"]) > 0
    with edited(built.root / "pyproject.toml", LIMITS, f"{LIMITS}\n[tool.opmatrix.mutate]\nminimum = 1\n"):
        again = project.fails("mutate", "--count", "6", NAME, message="the score of planted is below 100.0%")
    assert "killed by" not in again.stdout, "a mutant was tried again"
    project.passes()
    (shown,) = json.loads(built.report_data.read_text())["mutation"]
    assert shown["op"] == NAME and shown["date"] == found["date"] and shown["current"]
