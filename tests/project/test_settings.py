from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.project.paths import Paths
from opmatrix.project.settings import lost_headers, step_seconds


def test_a_setting_that_is_no_table_is_a_mistake_of_its_user(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.opmatrix]\nlimits = 5\n")
    with pytest.raises(UsageError, match="limits: found 5, allowed: a table"):
        step_seconds(Paths(tmp_path))


@pytest.mark.parametrize("place", ["", "[]", "{}", '{"path": 1}', '{"path": "a"}'])
@pytest.mark.parametrize("content", ["", "[]", "{}", '{"files": []}'])
def test_an_edited_list_of_headers_has_none(tmp_path: Path, content: str, place: str) -> None:
    """The headers step then writes it again: it differs from what that step left."""
    paths = Paths(tmp_path)
    paths.ort_headers.parent.mkdir()
    paths.ort_headers.write_text(content)
    paths.ort_headers_place.write_text(place)
    assert lost_headers(paths) == []
