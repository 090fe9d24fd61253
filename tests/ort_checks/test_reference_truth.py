"""The reference evaluator: the precision that it takes where none is given, and op types that ONNX has too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from opmatrix.data.reference import Reference
from opmatrix.ort_checks.evaluator import ReferenceRun
from opmatrix.spec import Attribute, OnnxOp
from tests.support.double import SPEC
from tests.support.projects import with_reference

pytestmark = pytest.mark.ort

NAIVE = "import numpy as np\n\ndef double(x, *, factor):\n    return np.cumsum(x, axis=-1)\n"


def test_a_reference_that_loses_digits_judges_in_float64(tmp_path: Path) -> None:
    node = helper.make_node(SPEC.onnx.op_type, ["x"], ["y"], domain=SPEC.onnx.domain)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [20_000]) for name in "xy")
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(SPEC.onnx.domain, 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=imports)
    run = ReferenceRun(model, [(SPEC, Reference(with_reference(tmp_path, "double", NAIVE), SPEC))])
    fed = np.random.Generator(np.random.PCG64(0)).normal(1.0, 1.0, 20_000).astype(np.float32)

    (found,) = run.run(None, {"x": fed})
    assert str(run.judge) == "float64"
    np.testing.assert_array_equal(found, np.cumsum(fed.astype(np.float64)).astype(np.float32))

    run.precision = "declared dtype"
    (plain,) = run.run(None, {"x": fed})
    assert (plain != found).any()


@pytest.mark.parametrize("op_type", ["Scan", "Loop", "If", "LeakyRelu"])
def test_an_op_type_that_onnx_has_too(op_type: str, tmp_path: Path) -> None:
    """Attributes of ONNX's operator are neither required nor defaults: LeakyRelu has alpha = 0.01 there."""
    spec = replace(
        SPEC,
        onnx=OnnxOp(domain="own.domain", op_type=op_type),
        attributes=(Attribute(name="alpha", kind="float", default=0.25),),
    )
    node = helper.make_node(op_type, ["x"], ["y"], domain="own.domain")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own.domain", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=imports)
    reference = Reference(with_reference(tmp_path, "double", "def double(x, *, alpha):\n    return x * alpha\n"), spec)
    (found,) = ReferenceRun(model, [(spec, reference)]).run(None, {"x": np.array([4.0, -8.0], np.float32)})
    assert found.tolist() == [1.0, -2.0]
