"""A project in which everything that a model needs is built, and faults in its kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.projects import Project, edited

OPERATORS = ("group_norm", "inverse", "custom_op_one", "custom_op_two")


@pytest.fixture(scope="package")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project in which everything that a model needs is built."""
    made = Project.copy(tmp_path_factory.mktemp("check"), operators=OPERATORS)
    made.passes("codegen", "compile")
    return made


@pytest.fixture
def kernel(project: Project, request: pytest.FixtureRequest) -> Iterator[Project]:
    """Replace a line of a kernel during a test: request.param is operator, old text, new text."""
    operator, old, new = request.param
    with edited(project.paths.kernel(operator), old, new):
        project.passes(f"compile:{operator}")
        yield project
    project.passes(f"compile:{operator}")
