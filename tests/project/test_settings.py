from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.project.paths import Paths, cache_folder
from opmatrix.project.settings import default_opsets, step_limits


def test_a_setting_that_is_no_table_is_a_mistake_of_its_user(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.opmatrix]\nlimits = 5\n")
    with pytest.raises(UsageError, match="limits: found 5, allowed: a table"):
        step_limits(Paths(tmp_path))


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("seconds = 0", "seconds: found 0, allowed: a number above 0"),
        ("written = '4 GB'", "written: found '4 GB', allowed: a number above 0"),
        ("megabyte = 5", "megabyte: unknown setting, allowed: seconds, megabytes, written; did you mean 'megabytes'?"),
    ],
)
def test_a_wrong_limit_is_reported(table: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.opmatrix.limits]\n{table}\n")
    with pytest.raises(UsageError) as caught:
        step_limits(Paths(tmp_path))
    assert str(caught.value) == f"pyproject.toml: [tool.opmatrix.limits]: {text}"


def test_all_wrong_opsets_are_reported_also_those_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.opmatrix.opsets]\nlegacy = 18\ndynamo = [99]\n")
    with pytest.raises(UsageError) as caught:
        default_opsets(Paths(tmp_path))
    legacy, dynamo, node = str(caught.value).splitlines()
    assert legacy.endswith("legacy: found 18, allowed: a list of opsets such as [18, 20]")
    assert "dynamo: " in dynamo and "99" in dynamo
    assert node.endswith("node: found None, allowed: a list of opsets such as [18, 20]")


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
