"""An addon that cannot be imported costs the others nothing, and says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.addons import FEATURES
from opmatrix.basics import features
from opmatrix.basics.errors import UsageError
from opmatrix.commands import stages
from opmatrix.records.code_hash import PACKAGE

MAIN = ("-c", "import sys; from opmatrix.commands.main import main; sys.exit(main())")
STAGE = ("-m", "opmatrix")


@pytest.fixture(scope="module", params=FEATURES)
def broken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The name of an addon that cannot be imported, and the folder with a project and that opmatrix."""
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    shutil.copytree(PACKAGE, folder / "opmatrix", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / "opmatrix/addons" / name).rglob("*.py"):
        path.write_text("import of_no_package\n")
    (folder / "dodo.py").touch()
    return name, folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return done


def said(name: str) -> str:
    return (
        f"the addon '{name}' of opmatrix cannot be imported: No module named 'of_no_package'. Install opmatrix anew: "
        "pip install --force-reinstall opmatrix"
    )


def test_help_has_all_commands_and_stages_and_what_it_adds_says_that_it_is_broken(broken: tuple[str, Path]) -> None:
    name, folder = broken
    for kind, arguments, option in (("commands", MAIN, "help"), ("stages", STAGE, "--help")):
        added = getattr(FEATURES[name], kind)
        done = run(folder, *arguments, option)
        assert done.returncode == 0 and set(features.added(kind)) <= set(done.stdout.split())
        assert " ".join(done.stdout.split()).count(said(name)) == len(added)
        for one in added:
            done = run(folder, *arguments, one, "something")
            assert done.returncode == UsageError.exit_code and said(name) in done.stderr


def test_the_report_leaves_its_section_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from opmatrix.project.paths import Paths
    from opmatrix.report import write_report

    monkeypatch.setitem(sys.modules, "opmatrix.addons.bench.times", None)
    assert write_report._section("bench", Paths(tmp_path), ["double"]) == []
    assert "bench is left out: the addon 'bench' of opmatrix cannot be imported" in capsys.readouterr().err


def test_the_table_has_the_rows_of_each_stage() -> None:
    for name, feature in FEATURES.items():
        rows = features.load(feature.stage_table).STAGES if feature.stage_table else {}
        assert rows.keys() == feature.stages.keys(), name
        assert not rows.keys() & stages.STAGES.keys()
