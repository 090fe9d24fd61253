"""Compare the shapes that torch's fake kernel and ONNX's shape inference give with the declared rule, for every case
of `opmatrix.declaration.register_models.shaped`: the sizes of other operators are copied, and opcheck and the export
gates see them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper

from opmatrix.declaration.known_sizes import Known, rule_text
from opmatrix.declaration.load import Operator
from opmatrix.declaration.model_inputs import graph_inputs, node_inputs
from opmatrix.declaration.schema_versions import version_at
from opmatrix.declaration.size_expressions import Size
from opmatrix.declaration.torch_signature import attribute_values, dtype_of, node_type
from opmatrix.declaration.variadic_outputs import of_model, shapes_by_input
from opmatrix.errors import RegisterError
from opmatrix.export.generated_modules import GeneratedModules
from opmatrix.export.one_node_model import attributes
from opmatrix.export.signature_gates import registered
from opmatrix.matrix.cells import ir_version
from opmatrix.spec import Case, Model, OpSpec, shape_of
from opmatrix.testdata.dtypes import numpy_dtype
from opmatrix.torch_library import features
from opmatrix.torch_library.call import as_tuple, with_attributes
from opmatrix.torch_library.case_tensors import arguments

Shapes = Sequence[Sequence[Size] | None]
OPSET = 18


def results(operator: Operator, overload: Callable[..., Any], generated: GeneratedModules) -> list[dict[str, str]]:
    """Return the cases whose shapes agree. Raises RegisterError for the first one that differs."""
    spec, found = operator.spec, []
    for model, case in [(m, c) for m in operator.models for c in m.cases]:
        fed, called = graph_inputs(spec, model, case), of_model(spec, model)
        shapes = shapes_by_input((feed.part, shape_of(feed.tensor)) for feed in fed)
        known = Known(spec=spec, shapes=shapes, attributes=attribute_values(spec, model))
        wanted = [known.output(output) for output in called.outputs]
        inferred = {"ONNX's shape inference": _onnx(spec, model, case, generated)}
        if features.OPCHECK.available:
            inferred["the fake kernel"] = _fake(spec, model, case, overload)
        for side, shapes_of_side in inferred.items():
            for problem in _differences(called, side, shapes_of_side, wanted):
                raise RegisterError(f"{spec.name}-{case.name}: {problem}")
        found.append({"case": case.name, "check": "inference"})
    return found


def _differences(spec: OpSpec, side: str, found: Shapes, wanted: Shapes) -> Iterator[str]:
    for output, inferred, declared in zip(spec.outputs, found, wanted, strict=True):
        if inferred is not None and declared is not None and [*inferred] == [*declared]:
            continue
        yield (
            f"{side} gives {output.name} the shape {_text(inferred)}, the declared rule, {rule_text(output.shape)}, "
            f"gives {_text(declared)}. Generate it again with: python -m opmatrix codegen {spec.name}"
        )


def _text(shape: Sequence[Size] | None) -> str:
    """Return a shape with ? for a size that is not known."""
    return "?" if shape is None else f"({', '.join('?' if s is None else str(s) for s in shape)})"


def _fake(spec: OpSpec, model: Model, case: Case, overload: Callable[..., Any]) -> Shapes:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode(shape_env=ShapeEnv()):
        flat = [
            torch.empty(shape_of(feed.tensor), dtype=getattr(torch, dtype_of(feed.part.type, model.types)))
            for feed in graph_inputs(spec, model, case)
        ]
        made = as_tuple(with_attributes(overload, spec, model)(*arguments(spec, case, flat)))
    return [[size if isinstance(size, int) else None for size in one.shape] for one in made]


def _onnx(spec: OpSpec, model: Model, case: Case, generated: GeneratedModules) -> Shapes:
    inputs = [
        helper.make_tensor_value_info(
            feed.name,
            helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype_of(node_type(feed.part), model.types))),
            shape_of(feed.tensor),
        )
        for feed in graph_inputs(spec, model, case)
    ]
    names = [output.name for output in of_model(spec, model).outputs]
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in names]
    node = helper.make_node(spec.onnx.op_type, node_inputs(spec, model), names, domain=spec.onnx.domain)
    node.attribute.extend(attributes(spec, model))
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(spec.onnx.domain, model.domain_version)]
    graph = helper.make_graph([node], spec.name, inputs, outputs)
    proto = helper.make_model(graph, opset_imports=imports, ir_version=ir_version("node", OPSET))
    with registered(generated.schema.schema(version_at(spec, model.domain_version))):
        inferred = onnx.shape_inference.infer_shapes(proto)
    tensors = [value.type.tensor_type for value in inferred.graph.output]
    return [
        [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
        if tensor.HasField("shape")
        else None
        for tensor in tensors
    ]
