from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.project.paths import Paths, cache_folder
from opmatrix.project.settings import step_seconds


def test_a_setting_that_is_no_table_is_a_mistake_of_its_user(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.opmatrix]\nlimits = 5\n")
    with pytest.raises(UsageError, match="limits: found 5, allowed: a table"):
        step_seconds(Paths(tmp_path))


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/dev"}, "/home/dev/.cache/opmatrix"),
        ({"HOME": "/home/dev", "XDG_CACHE_HOME": "/var/cache"}, "/var/cache/opmatrix"),
        ({"HOME": "/home/dev", "XDG_CACHE_HOME": "relative"}, "/home/dev/.cache/opmatrix"),
    ],
)
def test_cache_folder(environ: dict[str, str], folder: str) -> None:
    assert cache_folder(environ) == Path(folder)
