"""The libraries in the report's page: the files that their table names, unchanged, and their licences in each page."""

from __future__ import annotations

import re
from hashlib import sha256

from opmatrix.report.page_template import VENDORED, join

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
