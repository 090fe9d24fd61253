"""An operator of ONNX alone whose node has tensors as attributes passes all gates; wrong tensors are refused.

tests/projects/tensors: a table of float32 with a size that is not declared, a mask of bool, and a scalar of int64.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.support.forked import forked
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.ort]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("tensors", tmp_path_factory.mktemp("tensors"), "opsets=18")


def node_model(project: Project, **changed: object) -> onnx.ModelProto:
    """Return the model `two` with other attributes; None removes one."""
    model = onnx.load(project.paths.build / "export/lookup/custom/node-opset18/two/model.onnx")
    node = model.graph.node[0]
    kept = [a for a in node.attribute if a.name not in changed]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(n, v) for n, v in changed.items() if v is not None)])
    return model


def tensor(*shape: int, dtype: str = "float32") -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(shape, dtype))


def test_every_cell_is_verified(project: Project) -> None:
    assert {name: record["outcome"] for name, record in project.records().items()} == {
        "lookup-custom@torchNone-node-opset18-ort1.31": "verified"
    }


# What to change in a node, and the messages of ONNX Runtime and of doit check.
REFUSED: dict[str, tuple[Callable[[], dict[str, object]], str, str]] = {
    "missing": (
        lambda: {"kept": None},
        "lookup: attribute kept is missing; it must be of type tensor",
        "attribute 'kept' is missing and has no default",
    ),
    "another kind": (
        lambda: {"kept": [1, 0, 1]},
        "lookup: attribute kept must be of type tensor, got ints",
        "attribute 'kept': it is INTS, declared: TENSOR",
    ),
    "another dtype": (
        lambda: {"template": tensor(3, 2, dtype="float64")},
        "lookup: attribute template must be a tensor of float32, got one of another dtype",
        "attribute 'template': it is float64, declared: float32",
    ),
    "another size": (
        lambda: {"template": tensor(4, 2)},
        "lookup: attribute template must have the shape (3, -1), where -1 is any size, got (4, 2)",
        "attribute 'template': it has the shape (4, 2), declared: (3, None)",
    ),
    "another rank": (
        lambda: {"offset": tensor(1, dtype="int64")},
        "lookup: attribute offset must have the shape (), where -1 is any size, got (1,)",
        "attribute 'offset': it has the shape (1,), declared: ()",
    ),
    "another name": (
        lambda: {"table": tensor(3, 2)},
        "lookup: unknown attribute table; in ONNX its name is template",
        "it has no attribute 'table'; declared: template, kept, offset",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_wrong_tensor_is_refused(fault: str, project: Project) -> None:
    change, message, finding = REFUSED[fault]
    model = node_model(project, **change())
    onnx.save(model, path := project.root / "planted.onnx")
    assert finding in project.doit("check", str(path)).stdout

    def in_onnx_runtime() -> None:
        from opmatrix.ort_checks.sessions import OrtSessions, RefusedError

        with pytest.raises(RefusedError, match=re.escape(message)):
            OrtSessions(project.paths.ort_library("lookup")).sessions(model.SerializeToString())

    assert forked(in_onnx_runtime, project.root / "output") == ""
