"""A kernel that throws, segfaults, hangs or takes all memory fails its own cells, and only those."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.projects import Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

FAULTS = {
    "throws": ('throw std::runtime_error("group_norm: planted");', "group_norm: planted"),
    "never ends": ("volatile bool forever = true; while (forever) {}", "did not end within 15 s and was stopped"),
    # 16 MB at a time, and a write to each page: reserved memory does not count.
    "takes all memory": (
        "for (volatile bool more = true; more;) __builtin_memset(__builtin_malloc(1 << 24), 1, 1 << 24);",
        "took more than 1000 MB of memory and was stopped",
    ),
}

# The parts of register without the property test, which would only take time for each fault.
RUN = ("opsets=18", "register:*-kernel*", "verify", "report")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project of two operators, exported: a fault of a kernel must not run the exports again."""
    made = Project.copy(tmp_path_factory.mktemp("isolation"), megabytes=1000)
    made.second_operator("sound")
    made.passes(*RUN)
    return made


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_one_kernel(project: Project, fault: str) -> None:
    statement, expected = FAULTS[fault]
    kernel = project.root / "native/group_norm/kernel.h"
    original = kernel.read_text()
    head, opening, body = original.partition("TensorView<T> y) {\n")
    assert opening, "the kernel's signature has changed"
    broken = "#include <stdexcept>\n" + head + opening + "  " + statement + "\n" + body
    # Only the kernel that never ends has little time, and the compiler has more: some machines take 8 s for 1000 MB.
    seconds = 15 if fault == "never ends" else 3600
    kernel.write_text(broken)
    try:
        assert project.doit(RUN[0], "compile").returncode == 0
        with edited(project.root / "pyproject.toml", "\nseconds = 3600\n", f"\nseconds = {seconds}\n"):
            done = project.doit(*RUN)
    finally:
        kernel.write_text(original)
    assert done.returncode != 0
    outcomes = {name: record["outcome"] for name, record in project.records().items()}
    assert {n: o for n, o in outcomes.items() if n.startswith("sound")} and all(
        o == "verified" for n, o in outcomes.items() if n.startswith("sound")
    )
    failed = {n: r for n, r in project.records().items() if n.startswith("group_norm-custom")}
    assert len(failed) == 2
    for name, record in failed.items():
        assert record["outcome"] == "failed", (name, record)
        assert expected in record["detail"], record
        if fault != "throws":
            assert re.search(r", at case seed$", record["detail"], flags=re.MULTILINE), record
            assert re.search(r"^Replay: .* --case seed$", record["detail"], flags=re.MULTILINE), record
    if fault != "throws":
        assert "  Replay: python -m opmatrix register group_norm --part kernel --case seed\n" in done.stdout
    assert "export:" not in done.stdout, "a kernel's edit exports nothing"


def test_the_operator_recovers(project: Project) -> None:
    project.passes(*RUN)
    assert {r["outcome"] for r in project.records().values()} == {"verified"}


def test_a_compile_error_blocks_only_its_operator(project: Project, tmp_path: Path) -> None:
    kernel = project.root / "native/group_norm/kernel.h"
    with edited(kernel, "#pragma once\n", "#pragma once\nint planted = not_declared;\n"):
        done = project.doit(*RUN)
    assert done.returncode != 0
    shown = done.stdout + done.stderr
    assert "native/group_norm/kernel.h:" in shown and "not_declared" in shown, shown
    records = project.records()
    assert {r["outcome"] for n, r in records.items() if n.startswith("sound")} == {"verified"}
    for name, record in records.items():
        if name.startswith("group_norm-custom"):
            assert record["outcome"] == "failed", (name, record)
            assert record["detail"].startswith("not run: compile:group_norm failed: "), (name, record)
            assert "not_declared" in record["detail"], (name, record)
