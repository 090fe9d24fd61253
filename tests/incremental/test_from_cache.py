"""`doit --from-cache`: every result that the shared cache has, and nothing computed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.incremental.conftest import Project

pytestmark = pytest.mark.incremental

CELLS = [f"torch{torch}-dynamo-opset18-ort1.31" for torch in ("2.6", "2.13")]

MORE = """
def do_environment(name, target):
    for made in ("stamp", "lib/python3.11/site-packages/torch-2.6.0.dist-info", "versions"):
        Path(f".venv-matrix/{name}/{made}").mkdir(parents=True, exist_ok=True)
    Path(f".venv-matrix/{name}/versions/torch").write_text("2.6.0")
    Path(f".venv-matrix/{name}/packages.txt").write_text("torch-2.6.0\\n")

def do_include(source, target):  # a compiler that reads a header of the environment
    do_copy(source, target)
    Path(".venv-matrix/torch2.6/torch.h").write_text("TORCH")
    Path("build/found").write_text(".venv-matrix/torch2.6/torch.h\\n")

def do_judge(source, verdict):
    do_copy(source, "build/judged")
    Path(verdict).parent.mkdir(parents=True, exist_ok=True)
    Path(verdict).write_text('{"outcome": "verified"}')
"""


class Clone(Project):
    """A clone whose operator has a cell in this torch, one in torch 2.6, and a report of both."""

    def __init__(self, root: Path, store: Path) -> None:
        root.mkdir(parents=True)
        super().__init__(root)
        self.url = store.as_uri()
        self.write("fake.py", self.read("fake.py") + MORE)
        self.write("a.txt", "right")
        self.step("codegen:a", "copy", "a.txt", "build/a.g")
        versions = ".venv-matrix/torch2.6/versions/torch"
        made = self.step("environment:torch2.6", "environment", "torch2.6", versions, reads=["pins.txt"])
        made["writes"].append(".venv-matrix/torch2.6/packages.txt")
        self.write("pins.txt", "torch==2.6.0")
        made = self.step("compile:a@torch2.6", "include", "build/a.g", "build/a.so", reads=["build/a.g", versions])
        made["discovered_inputs"] = "build/found"
        for cell, source, environment in zip(CELLS, ("build/a.so", "build/a.g"), ("torch2.6", None), strict=True):
            verdict = f"build/verify/{cell}.json"
            task, reads = f"verify:a-custom@{cell}", [source, *([versions] if environment else [])]
            self.step(task, "judge", source, verdict, verdict=verdict, environment=environment, reads=reads)
        self.report("report_all", discovered_inputs="build/report/verdicts.txt")

    def run(self, *arguments: str, mode: str = "write") -> tuple[int, str]:
        done = self.doit(*arguments, OPMATRIX_CACHE=self.url, OPMATRIX_CACHE_MODE=mode)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def second(tmp_path: Path) -> Clone:
    """A fresh clone, with the cache of one that has computed all."""
    code, said = Clone(tmp_path / "first", tmp_path / "store").run()
    assert code == 0, said
    return Clone(tmp_path / "second", tmp_path / "store")


def test_a_report_needs_no_environment_and_computes_nothing(second: Clone) -> None:
    code, said = second.run("--from-cache", mode="read")
    assert code == 0, said
    assert second.ran() == [f"{CELLS[1]}.json"], "the report"
    assert "TABLE of 2 cells, 0 bad" in said and "1 run, 5 from the shared cache" in said
    environment = second.root / ".venv-matrix/torch2.6"
    assert (environment / "versions/torch").read_text() == "2.6.0" and not (environment / "stamp").exists()
    code, said = second.run("compile", mode="off")
    assert code == 0 and "torch" in second.ran(), "a run that computes makes the environment"


def test_what_the_cache_lacks_is_not_run(second: Clone) -> None:
    second.write("pins.txt", "torch==2.6.1")
    code, said = second.run("--from-cache")
    assert code == 1
    assert second.ran() == [f"{CELLS[1]}.json"]
    assert "TABLE of 2 cells, 1 bad" in said
    found = second.json(f"build/verify/{CELLS[0]}.json")
    assert found["detail"] == "not run: the shared cache has no result of environment:torch2.6"
    assert found["blocked_by"] == {"group": "environment", "name": "torch2.6", "missing": True}
    assert second.json(f"build/verify/{CELLS[1]}.json") == {"outcome": "verified"}
    code, said = second.run()
    assert code == 0 and "TABLE of 2 cells, 0 bad" in said, "what was not run is no result"


def test_an_empty_cache_runs_nothing(second: Clone, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "store")
    code, _ = second.run("--from-cache")
    assert code == 1 and second.ran() == [f"{CELLS[1]}.json"]
    details = [second.json(f"build/verify/{cell}.json")["detail"] for cell in CELLS]
    assert details[1] == "not run: the shared cache has no result of codegen:a"
    assert details[0].startswith("not run: the shared cache has no result of ")


def test_a_cell_without_a_result_counts_with_those_like_it(second: Clone) -> None:
    for step in second.steps:
        if step["group"] == "verify":
            step["config"] = "another tolerance"
    code, said = second.run("--from-cache")
    assert code == 1 and said.count("FAILED") <= 2
    found = second.json(f"build/verify/{CELLS[0]}.json")
    assert found["detail"] == "not run: the shared cache has no result of verify:a*"
    assert found["blocked_by"] == {"group": "verify", "name": "a*", "missing": True}


@pytest.mark.parametrize(
    ("mode", "arguments", "message"),
    [
        ("off", (), "--from-cache: no shared cache is set, or it is off. Set url in pyproject.toml: [tool.opmatrix.ca"),
        ("check", (), "--from-cache: the mode of the shared cache is 'check', which computes everything"),
        ("read", ("-a",), "--from-cache computes nothing, and --always-execute computes everything: leave one out"),
    ],
)
def test_a_run_that_could_take_nothing_is_an_error(
    second: Clone, mode: str, arguments: tuple[str, ...], message: str
) -> None:
    code, said = second.run("--from-cache", *arguments, mode=mode)
    assert code == 2 and message in said and second.ran() == []
