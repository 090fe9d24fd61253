"""The kernels of new operators, for every kind of argument, compile with the warnings of the project."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from opmatrix.scaffold import render
from tests.scaffold.test_render_files import drafts

ROOT = Path(__file__).parents[2]


@pytest.mark.compile
def test_every_kernel_compiles(tmp_path: Path) -> None:
    lines = []
    for draft in drafts():
        name = draft.spec.name
        path = tmp_path / f"{name}.h"
        path.write_text(render.render(draft)[f"native/{name}/kernel.h"])
        lines += [f'#include "{path.name}"', f"constexpr auto use_{name} = &opmatrix::{name}::{name}<float>;"]
    (tmp_path / "all.cc").write_text("\n".join(lines))
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-fsyntax-only", f"-I{ROOT}/native/include"]
    done = subprocess.run(["g++", *flags, "all.cc"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
