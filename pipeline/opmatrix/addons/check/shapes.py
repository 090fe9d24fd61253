"""The "types and shapes" finding: onnx.checker, and inference without the model's types. Imports onnx alone."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, defs, helper

from opmatrix.addons.check.graph_walk import format_type, node_label, nodes
from opmatrix.addons.check.repair import is_sorted
from opmatrix.addons.check.sizes import WITH_WEIGHTS, dims, open_symbols
from opmatrix.basics import finding
from opmatrix.basics.errors import many, one_line
from opmatrix.basics.finding import Finding
from opmatrix.codegen import python_modules
from opmatrix.export.gates import registered
from opmatrix.signature.signature import ONNX_DOMAINS
from opmatrix.signature.versions import version_at
from opmatrix.spec import OpSpec

QUESTION = "types and shapes"
_VECTOR = 1 << 18  # elements of a vector whose values are propagated
_ERRORS = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError)

# What the checker says of models that ONNX Runtime reads, as of a link among the files, and why.
_READ_BY_ORT = {
    "not compatible with the version imported by model": "ONNX Runtime takes that of the model; only dtypes differ",
    "must be topologically sorted": "ONNX Runtime sorts the nodes of a graph, but not those of a branch or a function",
    "TensorProto ( tensor name:": "ONNX Runtime reads every file within the folder of the model",
}


def schemas(operators: Sequence[OpSpec], imported: Mapping[str, int]) -> tuple[defs.OpSchema, ...]:
    """Return the generated ONNX schema of each operator, for the imported versions of the domains."""
    found = []
    for spec in operators:
        module: dict[str, Any] = {}
        exec(compile(python_modules.render(spec)["schema.py"], f"ops/{spec.name}/spec.py", "exec"), module)
        found.append(module["schema"](version_at(spec, imported.get(spec.onnx.domain, 1))))
    return tuple(found)


def checker_findings(model: ModelProto, path: Path | None, op_schemas: Sequence[defs.OpSchema]) -> Iterator[Finding]:
    """Yield the error of onnx.checker's full check, which nodes without a schema pass; external data need `path`."""
    external = any(i.data_location == TensorProto.EXTERNAL for i in model.graph.initializer)
    try:
        with registered(*op_schemas):
            onnx.checker.check_model(str(path) if path and external else model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        text = f"onnx.checker refuses the model: {_short(error).rstrip('.')}"
        if _in_function_body(error):
            yield finding.note(QUESTION, f"{text}. ONNX Runtime may read it")
            return
        if reads := next((why for words, why in _READ_BY_ORT.items() if words in text), ""):
            in_graph = "topologically sorted" not in text or not is_sorted(model.graph.node)
            yield finding.note(QUESTION, f"{text}. {reads}") if in_graph else finding.wrong(QUESTION, text)
            return
        shapeless = ", ".join(repr(v.name) for v in (*model.graph.input, *model.graph.output) if _no_shape(v.type))
        if "Field 'shape'" in text and shapeless:
            # The checker demands a shape, if only with unknown sizes, and tests nothing more; ONNX Runtime needs none.
            yield finding.note(QUESTION, f"{text}. {shapeless} have no shape; ONNX Runtime reads such a model")
        else:
            yield finding.wrong(QUESTION, text)


def inference_findings(
    model: ModelProto,
    op_schemas: Sequence[defs.OpSchema],
    *,
    faulty: Collection[str] = (),
    builtin: Collection[tuple[str, str]] = (),
) -> Iterator[Finding]:
    """Yield the first node that loses a dtype or a rank, and the outputs whose inferred types the model contradicts.

    `faulty`: labels of nodes that have another fault, which explains the loss. `builtin`: operators whose types ONNX
    Runtime infers itself.
    """
    try:
        known = _inferred(model, op_schemas)
    except _ERRORS as error:
        if _in_function_body(error):
            text = f"onnx cannot infer through the function body of an operator: {_short(error)}"
            yield finding.note(QUESTION, f"{text}. ONNX Runtime may")
            return
        at = _first_failing(model, op_schemas)
        where = f" at {node_label(at)}" if at is not None and not (at.name and at.name in str(error)) else ""
        yield finding.wrong(
            QUESTION,
            f"shape inference fails{where}: {_short(error)}",
            "Fix that node: its inputs do not have the dtypes or the shapes that it takes",
        )
        return
    declared = {(s.domain, s.name) for s in op_schemas}
    values = [(node, output) for node in model.graph.node for output in node.output if output]
    every = [(node, output, what) for node, output in values if (what := _unknown(known.get(output)))]
    lost = list(_unexplained(model, every))
    if every and not lost:
        node, output, what = every[0]
        cause = f"the model gives no shape for an input of {node_label(node)}"
        yield finding.note(QUESTION, f"the {what} of {output!r} is unknown, because {cause} or of a node before it")
    for node, output, what in lost[:1]:
        others = len(lost) - 1
        further = f", and so of {many(others, 'value')} behind it" if others else ""
        text = f"the {what} of {output!r} is lost at {node_label(node)}{further}"
        if node_label(node) in faulty:
            yield finding.note(QUESTION, f"{text}: it follows from what is wrong with that node, see above")
            continue
        operator = (node.domain, node.op_type)
        if operator in declared:
            yield finding.wrong(QUESTION, text, "Fix the shape rule of its declaration")
        elif operator in builtin or node.domain in ONNX_DOMAINS:
            yield finding.note(QUESTION, f"{text}: onnx cannot tell it, ONNX Runtime may")
        else:
            yield finding.wrong(
                QUESTION,
                text,
                "onnx knows no schema of it: declare the operator in ops/, or let the exporter write the types of its "
                "outputs",
            )
    differing = list(_differing(model, known, op_schemas))
    yield from differing
    if not every and not differing:
        outputs = ", ".join(f"{o.name} {format_type(known[o.name])}" for o in model.graph.output if o.name in known)
        yield finding.ok(QUESTION, f"inferred throughout: {outputs}")


def _first_failing(model: ModelProto, op_schemas: Sequence[defs.OpSchema]) -> NodeProto | None:
    """Return the first node at which inference fails, or None if it fails for another reason."""
    part = deepcopy(model)
    del part.graph.output[:]

    def fails(count: int) -> bool:
        del part.graph.node[:]
        part.graph.node.extend(model.graph.node[:count])
        try:
            _inferred(part, op_schemas)
        except _ERRORS:
            return True
        return False

    count = len(model.graph.node)
    if fails(0) or not fails(count):
        return None
    first = bisect_left(range(1, count + 1), True, key=fails)
    failing: NodeProto = model.graph.node[first]
    return failing


def _inferred(model: ModelProto, op_schemas: Sequence[defs.OpSchema]) -> dict[str, TypeProto]:
    """Return the types that onnx infers without those that the exporter wrote for inner values and outputs."""
    bare = deepcopy(model)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.ClearField("type")
    # The propagation of values, which may be sizes, makes each element of a vector: 0.5 us and 100 bytes.
    shapes = (value.type.tensor_type.shape.dim for value in bare.graph.input)
    values = all(len(dims) != 1 or dims[0].dim_value <= _VECTOR for dims in shapes)
    with registered(*op_schemas):
        graph = onnx.shape_inference.infer_shapes(bare, check_type=True, strict_mode=True, data_prop=values).graph
    constants = {i.name: helper.make_tensor_type_proto(i.data_type, i.dims) for i in graph.initializer}
    return constants | {v.name: v.type for v in (*graph.input, *graph.value_info, *graph.output)}


def _unexplained(model: ModelProto, lost: Sequence[tuple[NodeProto, str, str]]) -> Iterator[tuple[NodeProto, str, str]]:
    """Yield what is unknown at nodes that do not depend on an input for which the model gives no shape. `lost`: node,
    value and "dtype" or "rank", in graph order: the first is the cause."""
    shapeless = {value.name for value in model.graph.input if _no_shape(value.type)}
    for node, output, what in lost:
        if shapeless.isdisjoint(node.input) or what == "dtype":
            yield node, output, what
        else:
            shapeless.add(output)


def _no_shape(onnx_type: TypeProto) -> bool:
    return onnx_type.HasField("tensor_type") and not onnx_type.tensor_type.HasField("shape")


def _unknown(onnx_type: TypeProto | None) -> str:
    if onnx_type is None or onnx_type.WhichOneof("value") is None:
        return "dtype"
    if onnx_type.HasField("tensor_type"):
        if not onnx_type.tensor_type.elem_type:
            return "dtype"
        return "" if onnx_type.tensor_type.HasField("shape") else "rank"
    return ""  # a sequence, a map or an optional


def _differing(
    model: ModelProto, types: Mapping[str, TypeProto], op_schemas: Sequence[defs.OpSchema]
) -> Iterator[Finding]:
    """Yield the outputs whose types in the model differ from the inferred ones. A name of an input's axis says that it
    is no fixed size, unless the nodes fix it, as the weights of a MatMul do."""
    symbols = {*open_symbols(model.graph.input)}
    made = {value.name: "the model" for value in (*model.graph.input, *model.graph.initializer)}
    made |= {name: node_label(node) for node in model.graph.node for name in node.output}
    declared = {(s.domain, s.name) for s in op_schemas}
    has_custom = any((node.domain, node.op_type) in declared for node in nodes(model))
    rule = "fix the shape rule in ops/*/spec.py that is wrong, or " if has_custom else ""
    for output in model.graph.output:
        inferred = types.get(output.name)
        if inferred is None or _unknown(inferred) or _unknown(output.type):
            continue
        if _fits(output, inferred, symbols):
            continue
        sizes = zip(dims(output), inferred.tensor_type.shape.dim, strict=False)
        numbers = [(dim, d.dim_value) for dim, d in sizes if isinstance(dim, str) and d.HasField("dim_value")]
        if _fits(output, inferred, ()) and all(_is_fixed(model, name, size, op_schemas) for name, size in numbers):
            continue
        yield finding.wrong(
            QUESTION,
            f"the model says that output {output.name!r} is {format_type(output.type)}, "
            f"and {made[output.name]} makes it {format_type(inferred)}",
            f"The nodes compute another type than the exporter wrote: {rule}export it again",
        )


def _fits(output: ValueInfoProto, inferred: TypeProto, symbols: Collection[str]) -> bool:
    stated, found = output.type.tensor_type, inferred.tensor_type
    if stated.elem_type != found.elem_type or len(stated.shape.dim) != len(found.shape.dim):
        return False
    pairs = zip(dims(output), found.shape.dim, strict=True)
    sizes = [(dim, d.dim_value) for dim, d in pairs if d.HasField("dim_value")]
    return all(dim == size if isinstance(dim, int) else dim not in symbols for dim, size in sizes)


def _is_fixed(model: ModelProto, symbol: str, size: int, op_schemas: Sequence[defs.OpSchema]) -> bool:
    """Return whether a node with weights refuses another size of the axes of this name."""
    other = deepcopy(model)
    for value in other.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == symbol:
                dim.dim_value = size + 1
    try:
        _inferred(other, op_schemas)
    except _ERRORS as error:
        failing = re.findall(r"op_type:(\w+)", str(error))
        return any(map(WITH_WEIGHTS.search, failing))
    return False


def _in_function_body(error: Exception) -> bool:
    """Return whether onnx fails in the nodes of which its own schema makes an operator: onnx 1.23 does for
    MeanVarianceNormalization of opset 13, which is right."""
    return str(error).count("Inference error(s)") > 1


def _short(error: Exception) -> str:
    """Return an error of onnx in one line, without the whole node that its checker appends."""
    return one_line(str(error).partition("==> Context:")[0])[:400]
