"""Compare the shapes that ONNX Runtime infers while it loads a model with the declared rule, for every case.

One model has every case's node three times: with the sizes of the case, with the names of the model's dynamic axes, and
with unknown sizes. It names no shape of an output, and is loaded, but not run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import onnxruntime
from onnx import NodeProto, ValueInfoProto, helper

from opmatrix.basics.version import older
from opmatrix.data.arrays import numpy_dtype
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import GraphInput, graph_inputs, graph_outputs, node_inputs, node_outputs
from opmatrix.export.signature import attributes
from opmatrix.ort_checks.cast_edges import CastSession
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.project.cells import ir_version
from opmatrix.signature.signature import OWN_ORT, attribute_values, dtype_of, is_own, node_type
from opmatrix.sizes.expressions import Size
from opmatrix.sizes.known import Known, Shape, rule_text, shape_text
from opmatrix.sizes.rules import last_inferred
from opmatrix.sizes.variadic import of_model, shapes_by_input
from opmatrix.spec import Case, Model, OpSpec, Output, shape_of

OPSET = 17  # every supported ONNX Runtime reads it
SINCE = "1.17"  # older ones infer no shape of a custom op
PAST_ABSENT_SINCE = "1.24"  # older ones end the process for a node with an absent input (native/binding/ort_api.h)


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of a case. `prefix` begins the names of its values, `sizes` has what is known of its inputs."""

    case: Case
    model: Model
    prefix: str
    inputs: list[ValueInfoProto]
    proto: NodeProto
    sizes: Known


def problems(operator: Operator, runtime: OrtSessions) -> Iterator[str]:
    """Yield where ONNX Runtime infers another size than the declaration gives, or none where it is known.

    A handwritten binding may infer nothing. Raises RefusedError where ONNX Runtime rejects the nodes.
    """
    if older(onnxruntime.__version__, SINCE):
        return
    spec = operator.spec
    handwritten = is_own(OWN_ORT, spec, operator.handwritten_files)
    complete = not handwritten and not (
        any(i.optional for i in spec.inputs[:-1]) and older(onnxruntime.__version__, PAST_ABSENT_SINCE)
    )
    remedy = f"Correct InferOutputShapeFn in native/{spec.name}/ort.cc"
    if not handwritten:
        stages = f"python -m opmatrix codegen {spec.name}; python -m opmatrix compile {spec.name}"
        remedy = f"Generate and build it again: {stages}"
    nodes = [*_nodes(operator)]
    for version in sorted({node.model.domain_version for node in nodes}):
        asked = [node for node in nodes if node.model.domain_version == version]
        session = runtime.sessions(_model(spec, asked, version), settings=("not optimised",))["not optimised"]
        assert isinstance(session, onnxruntime.InferenceSession | CastSession)
        inferred = {value.name: value.shape for value in session.get_outputs()}
        for node in asked:
            for output in graph_outputs(spec, node.model):
                found = inferred[node.prefix + output.name]
                inferable = complete and of_model(spec, node.model).outputs.index(output) <= last_inferred(spec)
                if what := _difference(node, output, found, complete=inferable):
                    shapes = [f"{name} {shape_text(s)}" for name, s in node.sizes.shapes.items() if "[" not in name]
                    yield (
                        f"{spec.name}-{node.case.name}: for inputs of the shapes {', '.join(shapes)} ONNX Runtime "
                        f"{onnxruntime.__version__} infers {what}. {remedy}"
                    )


def _nodes(operator: Operator) -> Iterator[Node]:
    """Yield the nodes of every case, without those that are equal but for their values."""
    spec, seen = operator.spec, set[str]()
    for model, case in [(m, c) for m in operator.models if not m.unsupported for c in m.cases]:
        feeds = graph_inputs(spec, model, case)
        sizes = [shape_of(feed.tensor) for feed in feeds]
        named: list[Shape] = []
        for feed, given in zip(feeds, sizes, strict=True):
            names = model.dynamic.get(feed.part.name, (None,) * len(given))
            named.append(tuple(name or size for name, size in zip(names, given, strict=True)))
        for shapes in (sizes, named, [(None,) * len(given) for given in sizes]):
            key = f"{attribute_values(spec, model)} {model.types} {node_inputs(spec, model)} {model.absent} {shapes}"
            if key not in seen:
                seen.add(key)
                yield _node(spec, model, case, [*zip(feeds, shapes, strict=True)], prefix=f"n{len(seen)}.")


def _node(spec: OpSpec, model: Model, case: Case, fed: Sequence[tuple[GraphInput, Shape]], *, prefix: str) -> Node:
    inputs = []
    for feed, shape in fed:
        dtype = numpy_dtype(dtype_of(node_type(feed.part), model.types))
        element = helper.np_dtype_to_tensor_dtype(dtype)
        inputs.append(helper.make_tensor_value_info(prefix + feed.name, element, shape))
    proto = helper.make_node(
        spec.onnx.op_type,
        [name and prefix + name for name in node_inputs(spec, model)],
        [name and prefix + name for name in node_outputs(spec, replace(model, names={}))],
        domain=spec.onnx.domain,
    )
    proto.attribute.extend(attributes(spec, model))
    shapes = shapes_by_input((feed.part, shape) for feed, shape in fed)
    known = Known(spec=spec, shapes=shapes, attributes=attribute_values(spec, model))
    return Node(case=case, model=model, prefix=prefix, inputs=inputs, proto=proto, sizes=known)


def _model(spec: OpSpec, nodes: Sequence[Node], version: int) -> bytes:
    outputs = [helper.make_empty_tensor_value_info(name) for node in nodes for name in node.proto.output if name]
    graph = helper.make_graph([n.proto for n in nodes], spec.name, [i for n in nodes for i in n.inputs], outputs)
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(spec.onnx.domain, version)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=ir_version("node", OPSET))
    return bytes(made.SerializeToString())


def _difference(node: Node, output: Output, inferred: Sequence[Size], *, complete: bool) -> str:
    """Return what is inferred wrongly, with the declared size, or ""."""
    wanted = node.sizes.output(output)
    rule = f"the declared rule, {rule_text(output.shape)}, gives"
    whose = f"of output {output.name!r}"
    if not inferred:  # for a scalar, too
        # A custom op cannot tell an input without an axis from one of unknown rank.
        missing = complete and wanted and all(node.sizes.shapes.values())
        return f"no shape {whose}; {rule} {shape_text(wanted or ())}" if missing else ""
    if wanted is None or len(inferred) != len(wanted):
        shown = "no shape" if wanted is None else shape_text(wanted)
        return f"the shape {shape_text(inferred)} {whose}; {rule} {shown}"
    names = {size for shape in node.sizes.shapes.values() for size in shape if isinstance(size, str)}
    for axis, (size, right) in enumerate(zip(inferred, wanted, strict=True)):
        new = size is None or (isinstance(size, str) and size not in names)
        # A new name is right for a size that is not known, and nothing is wrong about one that could be.
        if size != right and not (new and (right is None or not complete)):
            expected = "no number" if right is None else right
            return (
                f"{size} as axis {axis} {whose}, expected {expected}: {shape_text(inferred)}; "
                f"{rule} {shape_text(wanted)}"
            )
    return ""
