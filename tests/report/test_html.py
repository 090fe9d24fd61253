"""The text of the report's page: complete and self-contained; data cannot change its markup. Other tests open it. The
libraries in the report's page: the files that their table names, unchanged, and their licences in each page.
Commands in the files of a report can be pasted: with ./run in a checkout, without it in a project.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree

import pytest

from opmatrix.basics.errors import ReportError
from opmatrix.basics.files import write_text
from opmatrix.project.paths import Paths
from opmatrix.records import verdict as verdicts
from opmatrix.records.verdict import CheckRecord, FailedStep, Verdict
from opmatrix.report import page, write_report
from opmatrix.report import page as html_page
from opmatrix.report.markdown import compare
from opmatrix.report.page import Background
from opmatrix.report.page_template import TEMPLATES, VENDORED, in_script, join
from opmatrix.report.read_cache import ReadCache
from opmatrix.report.records import pasteable
from opmatrix.report.report_json import document
from tests.report.many import BACKGROUND, ENVIRONMENTS, GRAPH, cells, checks, records, verdict

CELL = next(cells())
HOSTILE = "</script><script>alert(1)</script><!-- {{ script }} & \u2028 ]]> '\""


def render(found: list[Verdict], behind: Background = BACKGROUND) -> str:
    return page.render(document(found, ENVIRONMENTS), found, [behind] * len(found))


def scripts(html: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", html, re.DOTALL)


def embedded(html: str) -> dict[str, dict[str, dict[str, list[object]]]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found
    loaded: dict[str, dict[str, dict[str, list[object]]]] = json.loads(found[1])
    return loaded


def test_the_page_is_one_file_without_references_to_others() -> None:
    html = render(records(1))
    assert "{{ " not in html.replace("{{ script }}", "")
    code = re.sub(r"/\*!.*?\*/", "", html, flags=re.DOTALL)  # without the libraries' names and licences
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", code)
    assert not re.findall(r"<link(?! rel=\"icon\" href=\"data:,\")|<script src|<img|@import|url\(", html)


def test_the_policy_allows_only_the_page_itself() -> None:
    html = render([])
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'" and "unsafe" not in policy
    style = html.partition("<style>")[2].partition("</style>")[0]
    for rule, texts in (("script-src", scripts(html)), ("style-src", [style])):
        hashes = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in texts]
        assert rules[rule].split() == hashes
    assert html.index("Content-Security-Policy") < html.index("<style>")


def test_a_hostile_text_stays_data() -> None:
    wrong = verdict(HOSTILE, CELL, "failed", detail=HOSTILE)
    graph = GRAPH | {"inputs": [[0, HOSTILE, HOSTILE]]}
    html = render([wrong], Background(log=HOSTILE, pictures={HOSTILE: graph}))
    assert len(re.findall("</script", html)) == len(re.findall("<script", html)) == 1 + len(scripts(html))
    assert "alert(1)<" not in html
    found = embedded(html)["cells"]
    assert found["detail"]["values"] == found["log"]["values"] == found["op"]["values"] == [HOSTILE]


def test_text_in_a_script_element_is_the_same_json() -> None:
    assert json.loads(in_script(json.dumps(HOSTILE))) == HOSTILE
    assert not {"<", ">", "&"} & {*in_script(json.dumps(HOSTILE))}


def test_no_template_closes_its_own_element() -> None:
    for path in TEMPLATES[1:]:
        assert "</script" not in path.read_text() and "</style" not in path.read_text()


def test_a_check_has_the_notes_of_its_record() -> None:
    found = page.data(document([], ENVIRONMENTS, checks=checks()), [], [], checks())
    assert [check["notes"] for check in found["checks"]] == [["no sample covers x"], [], [], [], []]


def test_columns_have_each_text_once_and_give_every_record_back() -> None:
    found = records(2)
    before = document([replace(r, outcome="verified") for r in found[:-1]], ENVIRONMENTS)
    report = document(found, ENVIRONMENTS)
    report["changes"] = compare(report, before)
    data = page.data(report, found, [BACKGROUND] * len(found))
    columns, cases = data["cells"], data["cases"]

    def row(name: str, i: int) -> object:
        return columns[name]["values"][columns[name]["rows"][i]]

    for i, r in enumerate(found):
        assert [row(name, i) for name in ("op", "lowering", "torch", "exporter", "opset", "ort")] == [
            r.op, r.lowering, r.cell.torch, r.cell.exporter, r.cell.opset, r.cell.ort,
        ]  # fmt: skip
        assert (row("outcome", i), row("detail", i)) == (r.outcome, r.detail)
        limit = None if r.cases.tolerance_used is None else min(r.cases.tolerance_used, 1e300)
        assert columns["tolerance_used"][i] == (None if limit is None else pytest.approx(limit, rel=5e-3))
        n = columns["cases"][i]
        start, end = ([0, *cases["ends"]])[n], cases["ends"][n]
        names = [cases["case"]["values"][k] for k in cases["case"]["rows"][start:end]]
        assert names == [c.case for c in r.cases]
        judges = [cases["judged_in"]["values"][k] for k in cases["judged_in"]["rows"][start:end]]
        assert judges == [c.judged_in for c in r.cases]
    wrong = [i for i, r in enumerate(found[:-1]) if r.outcome in ("failed", "mismatched")]
    assert [i for i in range(len(found)) if row("change", i) == "broken"] == wrong != []
    assert row("change", len(found) - 1) == "new" and row("before", wrong[0]) == "verified"
    assert len(cases["ends"]) == 3, "the lists that cells share: right, wrong and none"
    assert len(data["graphs"]) == 1, "one picture stands for all that are alike"
    assert len(columns["torch"]["values"]) == 7 and len(columns["ort"]["values"]) == 5


def test_the_end_of_a_log_is_shown(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    record = verdict("op", CELL, "failed")
    assert page.read_background(ReadCache(paths), record) == Background()
    path = paths.log(f"verify:{record}")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff first\n" + b"\n".join(b"line %d" % n for n in range(3000)))
    log = page.read_background(ReadCache(paths), record).log.splitlines()
    assert len(log) == 40 and log[-1] == "line 2999"
    path.write_bytes(b"\xff only")
    assert page.read_background(ReadCache(paths), record).log == "\N{REPLACEMENT CHARACTER} only"
    assert page.read_background(ReadCache(paths), replace(record, outcome="verified")).log == "", "it says nothing new"


@pytest.mark.parametrize("task", ["compile:op", f"export:op-custom@{CELL.export_name}"])
def test_the_log_is_that_of_the_failed_step(tmp_path: Path, task: str) -> None:
    """The logs of verify and the export are of an earlier run."""
    paths = Paths(tmp_path)
    group, _, name = task.partition(":")
    wrong = replace(verdict("op", CELL, "failed"), blocked_by=FailedStep(group=group, name=name))
    for log, text in ((f"verify:{wrong}", "old"), (task, "error: no such thing")):
        write_text(paths.log(log), text)
    write_text(paths.graph_drawings("op", "custom", CELL), json.dumps(BACKGROUND.pictures))
    found = page.read_background(ReadCache(paths), wrong)
    assert found.log == "error: no such thing"
    assert bool(found.pictures) == (group == "compile")


@pytest.mark.parametrize("damaged", ["", "{", "[]"])
def test_unreadable_graphs_are_left_out(tmp_path: Path, damaged: str) -> None:
    paths = Paths(tmp_path)
    path = paths.graph_drawings("op", "custom", CELL)
    path.parent.mkdir(parents=True)
    path.write_text(damaged)
    assert page.read_background(ReadCache(paths), verdict("op", CELL)).pictures == {}


def test_the_page_of_many_cells_is_small() -> None:
    """Of the data of 82 cells with 26 cases each, most is cases: some 60 bytes each."""
    assert len(render(records(10, cases=10))) < 2_000_000


FOLDER = VENDORED[0].parent
ROW = re.compile(r"\| (?P<library>\S+) \| [\d.]+ \| MIT \| (?P<file>\S+) \| (?P<digest>[0-9a-f]{64}) \|")


def test_the_files_are_those_of_the_table() -> None:
    rows = [found for line in (FOLDER / "README.md").read_text().splitlines() if (found := ROW.fullmatch(line))]
    digests = {row["file"]: row["digest"] for row in rows}
    assert digests == {
        path.name: sha256(path.read_bytes()).hexdigest() for path in FOLDER.iterdir() if path.name != "README.md"
    }
    assert {*digests} == {path.name for path in VENDORED}


def test_each_page_contains_the_licences() -> None:
    html = join("{}")
    licences = [path.read_text().strip() for path in VENDORED if path.suffix == ".LICENSE"]
    assert licences and all(licence in html for licence in licences)


def test_no_library_runs_strings_or_names_a_file() -> None:
    """The policy of the page forbids both."""
    assert "sourceMappingURL" not in join("{}")
    code = "".join(path.read_text() for path in VENDORED if path.suffix == ".js")
    assert not re.findall(r"\beval\(|\bFunction\(|<script|</script|<!--", code)


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
