"""What the steps of this project are keyed by."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.layout import Layout
from pipeline.load import load_operators
from pipeline.project import chosen_cells, installed
from pipeline.steps import Plan, steps
from pipeline.toolchain.find import find_toolchain


def test_only_what_a_kernel_changes_is_keyed_by_it(root: Path) -> None:
    """opcheck, gradients and exports do not read what an edit of a kernel makes anew; what computes with it does."""
    layout = Layout(root)
    versions = installed()
    plan = Plan(
        layout=layout,
        operators=load_operators(layout),
        cells=chosen_cells(layout, versions=versions),
        versions=versions,
        toolchain=find_toolchain(os.environ),
        environ=os.environ,
    )
    found: dict[str, set[bool]] = {}
    for step in steps(plan):
        operator = step.name.partition("@")[0].partition("-")[0]
        if layout.kernel(operator).is_file():
            made = {layout.kernel(operator), layout.torch_library(operator), layout.ort_library(operator)}
            part = step.name.partition("@")[0].removeprefix(f"{operator}-")
            kind = f"{step.group} {part}" if step.group in ("register", "verify") else step.group
            found.setdefault(kind, set()).add(not made.isdisjoint(map(Path, step.reads)))
    free = {"glue", "data", "draw", "export", "register schema", "register nodes", "register gradient"}
    assert {kind for kind in free if found[kind] != {False}} == set()
    keyed = {"compile", "register kernel", "register search", "verify custom"}
    assert {kind for kind in keyed if found[kind] != {True}} == set()
    assert found["verify decomposed"] == {False}
