"""Commands in the files of a report can be pasted: with ./run in a checkout, without it in a project."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from opmatrix.basics.errors import ReportError
from opmatrix.basics.files import write_text
from opmatrix.project.paths import Paths
from opmatrix.records import verdict as verdicts
from opmatrix.records.verdict import CheckRecord, FailedStep
from opmatrix.report import page as html_page
from opmatrix.report import write_report
from opmatrix.report.records import pasteable
from tests.report.many import cells, verdict

CELL = next(cells())
REPLAY = "python -m opmatrix register op --part kernel --case a"
DETAIL = f"y differs. Replay: {REPLAY}\nKeep it: python -m opmatrix adopt-case op a"
KERNEL = CheckRecord(op="op", check="kernel", torch="1.13", outcome="failed", detail=DETAIL)
CASES = CheckRecord(op="op", check="cases", outcome="failed", detail="too few cases. Run: doit op")
COMMAND = re.compile(
    r"(?:\./run )?(?:\bpython -m opmatrix (?:verify|register|adopt-case|cases)|(?<=Run: )(?:\./run )?doit)"
)


@pytest.mark.parametrize("checkout", [True, False], ids=["checkout", "project"])
def test_commands_in_each_file_of_a_report(checkout: bool, tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    write_text(paths.ops / "op" / "spec.py", "")
    if checkout:
        (tmp_path / "run").touch()
    wrong = verdict("op", CELL, "mismatched")
    second = replace(wrong.cases[1], detail="stale data (python -m opmatrix verify op)")
    wrong = replace(wrong, detail="1 of 2 cases; case_1: 3 of 64 elements differ", cases=(wrong.cases[0], second))
    verdicts.write(paths.verdict(*wrong.key), wrong)
    for check in (KERNEL, CASES):
        verdicts.write(paths.check_record(*check.key), check)
    write_text(paths.log(f"verify:{wrong}"), "$ python -m opmatrix verify op\n")
    with pytest.raises(ReportError):
        write_report.run(paths, [wrong.key], [KERNEL.key, CASES.key])
    data, xml, summary, html = (path.read_text() for path in paths.report_files)
    page = html.partition('id="data">')[2].partition("</script>")[0]
    texts = [json.dumps(json.loads(one), ensure_ascii=False) for one in (data, page)]
    texts += ["\n".join(ElementTree.fromstring(xml).itertext()), summary]
    for text, least in zip(texts, (4, 6, 5, 4), strict=True):
        found = COMMAND.findall(text.replace("\\n", "\n"))
        assert len(found) >= least and {one.startswith("./run ") for one in found} == {checkout}, found
    assert json.loads(page)["run"] == ("./run " if checkout else "")
    again = f"{'./run ' * checkout}python -m opmatrix verify op --lowering custom --cell {CELL} --case case_1"
    assert f"Replay: {again}" in texts[2] and f"```text\n{again}\n```" in summary
    assert verdicts.read(paths.verdict(*wrong.key)) == wrong, "verdicts stay as they are: steps read them"


def test_cells_still_share_their_cases(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    shared = verdict("op", CELL, "mismatched")
    found = pasteable([shared, replace(shared, detail="x")], tmp_path)
    assert found[0].cases is found[1].cases


def test_the_page_repeats_a_blocked_step_with_the_command_of_the_checkout() -> None:
    scripts = "".join(path.read_text() for path in (Path(html_page.__file__).parent / "templates").glob("*.js"))
    assert "`${DATA.run}doit ${blocked}`" in scripts
    assert scripts.count("python -m opmatrix") == scripts.count("`${DATA.run}python -m opmatrix") == 2
    blocked = replace(KERNEL, blocked_by=FailedStep(group="compile", name="op"), detail="not run: compile:op failed")
    assert blocked.replay == ""
