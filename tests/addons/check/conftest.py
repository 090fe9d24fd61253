"""A project in which everything that a model needs is built, and faults in its kernels."""

from __future__ import annotations

import pytest

from tests.support.projects import Project

OPERATORS = ("group_norm", "inverse", "custom_op_one", "custom_op_two")


@pytest.fixture(scope="package")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project in which everything that a model needs is built."""
    made = Project.copy(tmp_path_factory.mktemp("check"), operators=OPERATORS)
    made.passes("codegen", "compile")
    return made


@pytest.fixture
def kernel(project: Project, request: pytest.FixtureRequest) -> Project:
    """Replace a line of a kernel during a test: request.param is operator, old text, new text."""
    operator, old, new = request.param
    path = f"native/{operator}/kernel.h"
    before = (project.root / path).read_text()
    request.addfinalizer(lambda: restore(project, operator, before))
    project.replace(path, old, new)
    built(project, operator)
    return project


def built(project: Project, operator: str) -> None:
    project.passes(f"compile:{operator}")


def restore(project: Project, operator: str, text: str) -> None:
    (project.root / f"native/{operator}/kernel.h").write_text(text)
    built(project, operator)
