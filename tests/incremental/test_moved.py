"""A project that was moved is up to date, and no message names its old folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.incremental.real import CASES, KERNEL, RealProject

pytestmark = [pytest.mark.incremental, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]


def edit(name: str, text: str = "// more\n") -> Callable[[RealProject], None]:
    return lambda project: project.append(name, text)


def remove(name: str) -> Callable[[RealProject], None]:
    return lambda project: (project.root / name).unlink()


# At 71b51ad8: `doit why` named the old folder in each.
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda project: None, "{} steps, all up to date\n", id="nothing"),
        pytest.param(edit(KERNEL), "compile:group_norm: native/group_norm/kernel.h ", id="a_kernel"),
        pytest.param(edit("ops/group_norm/reference.py", "X = 1\n"), "ops/group_norm/reference.py ", id="a_reference"),
        pytest.param(edit(CASES, "\nMODELS = MODELS[:1]\n"), "cases.py: ", id="cases"),
        pytest.param(edit("native/include/opmatrix/check.h"), "native/include/opmatrix/check.h ", id="header"),
        pytest.param(remove("build/report/verdicts.txt"), "{} steps, all up to date\n", id="the_list_of_the_report"),
        pytest.param(remove("build/compile/group_norm/headers.txt"), "is no longer read", id="the_list_of_headers"),
        pytest.param(remove("build/report/index.html"), "build/report/index.html is missing", id="an_output"),
    ],
)
def test_after_a_move(real: RealProject, tmp_path: Path, change: Callable[[RealProject], None], expected: str) -> None:
    real.passes()
    shutil.copytree(real.root, tmp_path / "moved", symlinks=True)
    moved = RealProject(tmp_path / "moved")
    before = moved.run("why").stdout
    change(moved)
    done = moved.run("why")
    assert done.returncode == 0 and str(real.root) not in before + done.stdout, done.stdout
    assert expected.format(before.partition(" ")[0]) in done.stdout
