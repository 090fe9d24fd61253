"""Cases as arguments of the registered operator with its fake kernel and gradient, for opcheck and the exports of
`register`.

Compare the shapes that torch's fake kernel and ONNX's shape inference give with the declared rule, for every case
of `opmatrix.declaration.models.shaped`: the sizes of other operators are copied, and opcheck and the export
gates see them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import onnx
import torch
from onnx import TensorProto, helper

from opmatrix.basics.errors import RegisterError
from opmatrix.data.arrays import numpy_dtype
from opmatrix.data.case_arrays import case_arrays
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import graph_inputs, node_inputs, samples
from opmatrix.export.gates import registered
from opmatrix.export.generated_modules import GeneratedModules, load_generated
from opmatrix.export.node import attributes
from opmatrix.project.cells import ir_version
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import attribute_values, dtype_of, node_type
from opmatrix.signature.versions import version_at
from opmatrix.sizes.expressions import Size
from opmatrix.sizes.known import Known, rule_text
from opmatrix.sizes.variadic import of_model, shapes_by_input
from opmatrix.spec import Case, FromKernel, Model, OpSpec, shape_of
from opmatrix.torch_ops import features, load
from opmatrix.torch_ops.call import as_tuple, with_attributes
from opmatrix.torch_ops.case_tensors import arguments, tensors
from opmatrix.torch_ops.load import Gradient, LoadedLibrary
from opmatrix.torch_ops.transforms import has_formula, register_missing_gradient

Trace = Literal["dynamic", "static"]
"""How opcheck traces: with symbolic sizes, or with those of the sample."""


@dataclass(frozen=True, kw_only=True)
class OpcheckSample:
    """One case, its tensors, and the arguments made of them. With backward() declared, they require a gradient.

    `trace` is how opcheck traces the operator, with its gradient; None: not at all.
    """

    model: Model
    case: Case
    tensors: tuple[torch.Tensor, ...]
    arguments: list[Any]
    trace: Trace | None


def complete(
    paths: Paths, operator: Operator, loaded: LoadedLibrary, generated: GeneratedModules | None
) -> Iterator[OpcheckSample]:
    """Register the fake kernel and the gradient, then yield the samples.

    Registers no gradient in a torch without that feature. `generated` is None for torch's own operator, which has a
    fake kernel.
    """
    assert operator.spec.torch is not None
    if generated and not operator.spec.torch.python:
        generated.fake.register_fake()
    spec, name = operator.spec, loaded.overload.name()
    gradient = load.gradient(paths, spec) if features.REGISTRATION.available else None
    if gradient and not has_formula(name):  # another part in this process may have registered it
        serve(paths, gradient)
        gradient.register(name)
    chosen = [*samples(operator)]
    traces: Mapping[int, Trace] = dict.fromkeys(range(len(chosen)), "dynamic")
    if gradient:
        traces = _traces(spec, [counts for _, _, counts in chosen])
    for index, (model, case, _) in enumerate(chosen):
        flat = tensors(spec, model, case, case_arrays(spec, model, case))
        for feed, tensor in zip(graph_inputs(spec, model, case), flat, strict=True):
            if gradient and feed.part.name not in gradient.without and tensor.is_floating_point():
                tensor.requires_grad_()
        called = arguments(spec, case, flat)
        yield OpcheckSample(model=model, case=case, tensors=tuple(flat), arguments=called, trace=traces.get(index))


def serve(paths: Paths, gradient: Gradient) -> None:
    """Make the operator callable that computes a gradient, with its own gradient or with an error in place of one."""
    if not (called := gradient.operator):
        return
    name = load.load(paths, called).overload.name()
    if called.spec.torch and not called.spec.torch.python:
        load_generated(paths, called.name).fake.register_fake()
    if own := load.gradient(paths, called.spec):
        own.register(name)
    register_missing_gradient(called.spec)


def _traces(spec: OpSpec, counts: Sequence[tuple[int, ...]]) -> dict[int, Trace]:
    """Return the samples to trace, by index: that with the most tensors, and, with its own sizes, that with the fewest.
    A size that the kernel decides is a symbol in every trace.

    The trace of a gradient with symbolic sizes takes 0.7 CPU s for a short formula and 7 for a deformable convolution,
    with those of the sample a tenth. The gradient check covers the other samples.
    """
    given = [*map(sum, counts)]
    fewest: Trace = "dynamic" if any(isinstance(o.shape, FromKernel) for o in spec.outputs) else "static"
    return {given.index(min(given)): fewest, given.index(max(given)): "dynamic"} if given else {}


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
