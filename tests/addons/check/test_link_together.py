"""Libraries of several operators, which a session takes where they share a domain."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from opmatrix.basics.errors import CompileError
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.project.paths import Paths
from opmatrix.toolchain import link_together
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.ort, pytest.mark.slow]


def operators(project: Project, *names: str) -> list[Operator]:
    return [load_operator(project.paths, name) for name in names]


def test_a_combined_library_has_equal_bytes_and_no_path_of_the_project(project: Project) -> None:
    def made() -> bytes:
        return link_together.run(
            project.paths, operators(project, "custom_op_one", "custom_op_two", "group_norm")
        ).read_bytes()

    first = made()
    shutil.rmtree(project.paths.combined_folder(["custom_op_one", "custom_op_two", "group_norm"]))
    assert made() == first
    assert str(project.root).encode() not in first


def test_a_library_that_cannot_be_linked_is_refused(project: Project) -> None:
    with pytest.raises(CompileError, match="inverse has no objects: its kernel is ONNX Runtime's own"):
        link_together.run(project.paths, operators(project, "inverse"))
    (by_hand,) = (
        replace(o, handwritten_files=o.handwritten_files | {"ort.cc"}) for o in operators(project, "group_norm")
    )
    with pytest.raises(CompileError, match=r"native/group_norm/ort\.cc has a RegisterCustomOps of its own"):
        link_together.run(project.paths, [by_hand])
    elsewhere = Paths(project.root, debug=True)
    with pytest.raises(CompileError, match=r"kernel.o is missing. Run: doit compile:group_norm"):
        link_together.run(elsewhere, operators(project, "group_norm"))
