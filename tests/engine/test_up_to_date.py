from __future__ import annotations

from pathlib import Path

from opmatrix.basics.files import digests_by_path
from opmatrix.engine.database import Journal
from opmatrix.engine.tasks import REPORT, StepTask
from opmatrix.engine.up_to_date import State
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step


def begin(paths: Paths, step: Step, *, known: dict[str, str] | None = None) -> None:
    """Begin a step that last succeeded with the digests `known` of its outputs."""
    task, journal = StepTask(step), Journal(str(paths.state), None)
    journal.record(step.task, key="k", detail={"outputs": known or {}})
    state = State(journal, root=paths.root, tasks=[task])
    state.begin(task)
    assert journal.key(step.task) is None
    state.close()


def write(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("earlier")
    return str(path)


def test_no_record_of_a_step_exists_while_it_runs(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    library, manifest = write(tmp_path / "build/a.so"), write(tmp_path / "build/a.json")
    verdict = write(tmp_path / "build/verdict")
    step = Step(group="compile", name="a", operator="a", command=("x",), writes=(library, manifest), verdict=verdict)
    assert step.records == (verdict, manifest)
    begin(paths, step, known=digests_by_path([Path(library), Path(manifest)], tmp_path))
    assert [Path(path).exists() for path in (library, manifest, verdict)] == [True, False, False]


def test_an_output_that_the_step_did_not_leave_is_removed(tmp_path: Path) -> None:
    library = write(tmp_path / "build/a.so")
    begin(Paths(tmp_path), Step(group="compile", name="a", command=("x",), writes=(library,)), known={"build/a.so": ""})
    assert not Path(library).exists()


def test_a_link_of_another_step_stays(tmp_path: Path) -> None:
    """Steps of one model in two versions of ONNX Runtime link the same data sets, and may run at the same time."""
    link = tmp_path / "build/export/test_data_set_0"
    link.parent.mkdir(parents=True)
    link.symlink_to("../data/0")
    begin(Paths(tmp_path), Step(group="verify", name="a", command=("x",), links=(str(link),)))
    assert link.is_symlink()


def test_the_last_report_stays_to_be_compared_with(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    report = write(paths.report_data)
    begin(paths, Step(group=REPORT, name="", command=("report",), writes=(report,)))
    assert Path(report).exists()
