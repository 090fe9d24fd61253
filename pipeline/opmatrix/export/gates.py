"""The gates on every exported model: pure functions that yield each problem and its fix.

They compare the model with the declaration, never with the messages of an exporter. Need onnx alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, defs, helper, numpy_helper

from opmatrix.basics.errors import ExportError, did_you_mean, one_line
from opmatrix.declaration.models import node_inputs, node_outputs
from opmatrix.export.signature import ExpectedModel, Shape, ValueInfo, element_dtype
from opmatrix.lowering.graph import STANDARD, qualified
from opmatrix.project.cells import ORT
from opmatrix.signature import versions as schema_versions
from opmatrix.signature.signature import as_float32, attribute_values, has_onnx_types, onnx_kind, onnx_name
from opmatrix.spec import Attribute, AttributeValue


def declared_signature(proto: ModelProto, expected: ExpectedModel) -> Iterator[str]:
    """Names, dtypes and shapes of the graph's inputs and outputs are the declared ones."""
    wanted = expected.signature
    yield from _differences("input", proto.graph.input, wanted.inputs)
    yield from _differences("output", proto.graph.output, wanted.outputs)


def checker(proto: ModelProto, expected: ExpectedModel) -> Iterator[str]:
    """onnx's full check accepts the model with the schema registered; without it any custom node is accepted."""
    try:
        with registered(*expected.schemas):
            onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        yield f"onnx.checker refuses it: {one_line(error)}"


def inference(proto: ModelProto, expected: ExpectedModel) -> Iterator[str]:
    """Strict shape inference finds the declared dtypes and shapes of the outputs, without those of the exporter.

    In a graph of ONNX's own operators it may find less: before opset 13 no computed shape.
    """
    bare = ModelProto()
    bare.CopyFrom(proto)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.type.tensor_type.ClearField("shape")
    try:
        with registered(*expected.schemas):
            inferred = onnx.shape_inference.infer_shapes(bare, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        yield f"shape inference fails: {one_line(error)}. Fix the shape rule of the declaration"
        return
    partly = not expected.custom_nodes
    for problem in _differences("output", inferred.graph.output, expected.signature.outputs, partly=partly):
        yield f"shape inference: {problem}"


@contextmanager
def registered(*schemas: defs.OpSchema) -> Iterator[None]:
    """Register `schemas` in onnx while the block runs, so that they do not apply to other models."""
    with ExitStack() as stack:
        for schema in schemas:
            defs.register_schema(schema)
            stack.callback(defs.deregister_schema, schema.name, schema.since_version, schema.domain)
        yield


def _differences(
    kind: str, value_infos: Sequence[ValueInfoProto], wanted: Sequence[ValueInfo], *, partly: bool = False
) -> Iterator[str]:
    names, declared = [v.name for v in value_infos], [v.name for v in wanted]
    if names != declared:
        yield f"{kind}s are named {names}, declared: {declared}. Pass them as {kind}_names="
        return
    for value, want in zip(value_infos, wanted, strict=True):
        tensor = value.type.tensor_type
        dtype, shape = element_dtype(tensor.elem_type) or "unknown", None
        if tensor.HasField("shape"):
            sizes = (d.dim_param or (d.dim_value if d.HasField("dim_value") else None) for d in tensor.shape.dim)
            shape = tuple(sizes)
        if dtype != want.dtype:
            yield f"{kind} {want.name!r} has the dtype {dtype}, declared: {want.dtype}. Fix the type the lowering sets"
        if remedy := _shape_remedy(shape, want.shape, partly=partly):
            yield f"{kind} {want.name!r} has the shape {shape}, declared: {want.shape}. {remedy}"


def _shape_remedy(shape: tuple[int | str | None, ...] | None, wanted: Shape, *, partly: bool) -> str:
    """Return how to fix a shape, "" if sizes and names are equal; None in `wanted` is a dynamic size with any name or
    none. With `partly`, an unknown shape or a dynamic size matches everything."""
    if shape is None or len(shape) != len(wanted):
        lost = "The rank is lost: the symbolic must call setType, the ONNX schema needs an inference function"
        return "" if shape is None and partly else lost
    pairs = list(zip(shape, wanted, strict=True))
    if partly and all(f == w for f, w in pairs if isinstance(f, int)):
        return ""
    if not partly and all(f == w if w is not None else not isinstance(f, int) for f, w in pairs):
        return ""
    if any(isinstance(f, int) and not isinstance(w, int) for f, w in pairs):
        return "A dynamic size was baked in: something read it as a number while tracing"
    if any(not isinstance(f, int) and isinstance(w, int) for f, w in pairs):
        return "A static size is lost: the symbolic must call setType, the fake kernel must keep sizes"
    return "Fix the shape rule, or the names in the model's 'dynamic'"


# The highest version that torch 2.13 writes. A newer ONNX Runtime reads more.
_MAX_IR_VERSION = ORT["1.18"].ir


def check(proto: ModelProto, expected: ExpectedModel) -> None:
    """Raise ExportError with the problems that all gates find."""
    found = [problem for gate in GATES for problem in gate(proto, expected)]
    if found:
        raise ExportError("\n".join(f"{expected}: {problem}" for problem in found))


def nodes(proto: ModelProto, expected: ExpectedModel) -> Iterator[str]:
    """Custom nodes are the declared ones, in their number; standard nodes are those of the lowering."""
    found = Counter(qualified(n) for n in proto.graph.node)
    shown = ", ".join(found.elements()) or "none"
    for name, count in expected.custom_nodes.items():
        if not found[name]:
            yield (
                f"no node {name}, found: {shown}. It was replaced by a built-in or by its decomposition: "
                f"register the symbolic at opset {expected.cell.opset} itself (legacy); key the translation table by "
                f"the overload, '.default', and give the operator no CompositeImplicitAutograd kernel (dynamo)"
            )
        elif found[name] != count:
            wanted = "one" if count == 1 else str(count)
            yield f"{found[name]} nodes {name}, allowed: {wanted}. Call the operator once in the model"
    allowed = {*expected.custom_nodes, *expected.standard_nodes}
    around = {n.op_type for n in proto.graph.node if expected.model.around and n.domain in STANDARD}
    if extra := sorted(found.keys() - allowed - around):
        listed = ", ".join(sorted(allowed)) or "nothing"
        yield (
            f"unexpected nodes {', '.join(extra)} beside {listed}. Take them out of the lowering; if it does not "
            f"emit them, a symbolic or translation of another operator is still registered: export in another process"
        )
    if not expected.custom_nodes and not found:
        yield "no node at all. The lowering was not called: key the translation table by the overload, '.default'"


def baked_constants(proto: ModelProto, expected: ExpectedModel) -> Iterator[str]:
    """The model contains no tensor of the example inputs; its only constants are those that the lowering emits."""
    stored_values = [*(i.name for i in proto.graph.initializer), *(f.name for f in proto.functions)]
    constants = "Constant" in expected.standard_nodes or expected.model.around
    if stored_values and (proto.functions or not constants):
        yield (
            f"initializers or functions {', '.join(stored_values)}, allowed: none. A tensor was taken for a constant "
            f"while tracing; pass it as an input of the model"
        )


def node_arguments(proto: ModelProto, expected: ExpectedModel) -> Iterator[str]:
    """The node takes the graph's inputs and gives its outputs, in the declared order."""
    if expected.model.around:
        return  # the model's other nodes are not checked here; `verify` compares their values
    casts = [n for n in proto.graph.node if n.op_type == "Cast"] if has_onnx_types(expected.spec) else []
    before = {n.output[0]: n.input[0] for n in casts}
    after = {n.input[0]: n.output[0] for n in casts}
    for node in _declared_nodes(proto, expected):
        for what, found, wanted in (
            ("takes", [before.get(i, i) for i in node.input], list(node_inputs(expected.spec, expected.model))),
            ("gives", [after.get(o, o) for o in node.output], list(node_outputs(expected.spec, expected.model))),
        ):
            if found != wanted:
                yield f"{expected.node} {what} {found}, declared: {wanted}. Fix the order of arguments in the lowering"


def attributes(proto: ModelProto, expected: ExpectedModel) -> Iterator[str]:
    """The node has every attribute, defaults included, with the declared type and the model's value."""
    every = {onnx_name(a): a for a in schema_versions.attributes_at(expected.spec, expected.model.domain_version)}
    marks = {n: a.default for n, a in every.items() if n == schema_versions.MARK and a.default is not None}
    values = attribute_values(expected.spec, expected.model) | marks
    declared = {n: a for n, a in every.items() if values[a.name] is not None}
    later = {onnx_name(a): a.since for a in expected.spec.attributes}
    for node in _declared_nodes(proto, expected):
        found = {a.name: a for a in node.attribute}
        for name in sorted(found.keys() - declared.keys()):
            if since := later.get(name):
                yield (
                    f"attribute {name!r} is of version {since} of {expected.spec.onnx.domain!r}, and the model imports "
                    f"{expected.model.domain_version}. Write it where g.version() is {since} or more"
                )
                continue
            if name in every:
                yield f"attribute {name!r} is written, and the model has None: leave it out in the lowering"
                continue
            yield f"unknown attribute {name!r}, declared: {', '.join(declared)}{did_you_mean(name, declared)}"
        for name in sorted(declared.keys() - found.keys()):
            yield (
                f"attribute {name!r} is missing; ONNX Runtime would take its default, silently. Pass it as an "
                f"attribute in the lowering, with its type as a suffix, not as an input"
            )
        for name in sorted(declared.keys() & found.keys()):
            yield from _attribute(found[name], declared[name], as_float32(declared[name], values[declared[name].name]))


def defaults(proto: ModelProto, expected: ExpectedModel) -> Iterator[str]:
    """The ONNX schema has the declared defaults, as torch does: a model from another tool may omit an attribute."""
    for declared in schema_versions.attributes_at(expected.spec, expected.model.domain_version):
        written = expected.schema.attributes.get(onnx_name(declared))
        if written is None or declared.default is None:
            continue
        default, name = written.default_value, onnx_name(declared)
        found = _value(default) if default.type else None
        if not _same(found, wanted := as_float32(declared, declared.default)):
            yield (
                f"the ONNX schema has the default {found!r} for attribute {name!r}, declared: {wanted!r}, as "
                f"in torch. Generate it again with: python -m opmatrix codegen {expected.spec.name}"
            )


def _attribute(attribute: AttributeProto, declared: Attribute, wanted: AttributeValue) -> Iterator[str]:
    name = onnx_name(declared)
    found_type, wanted_type = AttributeProto.AttributeType.Name(attribute.type), onnx_kind(declared.kind)
    value = _value(attribute)
    if found_type != wanted_type:
        yield (
            f"attribute {name!r} has the type {found_type}, declared: {wanted_type}. ONNX Runtime reads it as absent: "
            f"fix the suffix of its name in the lowering ({name}_f, {name}_i or {name}_s)"
        )
    elif not _same(value, wanted):
        yield (
            f"attribute {name!r} is {value!r}, declared: {wanted!r}. A default differs between the torch schema, "
            f"the lowering and the ONNX schema, or the lowering drops the argument"
        )


def opset_imports(proto: ModelProto, expected: ExpectedModel) -> Iterator[str]:
    """The opset imports are the requested opset and the custom domains, and no others."""
    found = {o.domain: o.version for o in proto.opset_import}
    cell, versions = expected.cell, expected.versions
    if found.get("") != cell.opset:
        yield (
            f"opset {found.get('')} was written, asked for: {cell.opset}. The exporter or its version converter chose "
            f"another one; take a legal opset, or another exporter"
        )
    for domain in sorted({name.partition("::")[0] for name in expected.custom_nodes}):
        if found.get(domain) != versions[domain]:
            yield (
                f"domain {domain!r} is imported at version {found.get(domain)}, declared: {versions[domain]}. "
                f"Pass it in custom_opsets= (legacy), or as the since version of the translation's schema (dynamo)"
            )
    if extra := sorted(found.keys() - {"", *versions}):
        allowed = " and ".join(map(repr, ("", *versions)))
        yield f"unexpected opset imports {extra}, allowed: {allowed}. Something lowers to another domain"


def format_version(proto: ModelProto, expected: ExpectedModel) -> Iterator[str]:
    """ONNX Runtime can read the IR version."""
    if not 3 <= proto.ir_version <= _MAX_IR_VERSION:
        yield (
            f"IR version {proto.ir_version}, allowed: 3 to {_MAX_IR_VERSION}, which ONNX Runtime 1.18 and newer read. "
            f"Set ir_version before saving"
        )


def local_paths(proto: ModelProto, expected: ExpectedModel) -> Iterator[str]:
    """The file has no paths of this machine and no metadata: equal models have equal bytes in every checkout."""
    graph = proto.graph
    parts = [proto, graph, *graph.node, *graph.input, *graph.output, *graph.value_info]
    if any(part.metadata_props or part.doc_string for part in parts):
        yield "metadata or a doc string with paths of this machine is left in it. Strip them after the export"
    if any(t.data_location == TensorProto.EXTERNAL for t in graph.initializer):
        yield "a tensor lies in an external file. Export with external_data=False"


GATES: Sequence[Callable[[ModelProto, ExpectedModel], Iterator[str]]] = (
    nodes, baked_constants, node_arguments, attributes, defaults, opset_imports, declared_signature, checker, inference,
    format_version, local_paths,
)  # fmt: skip


def _declared_nodes(proto: ModelProto, expected: ExpectedModel) -> list[NodeProto]:
    return [n for n in proto.graph.node if qualified(n) == expected.node]


def _value(attribute: AttributeProto) -> object:
    """Return the value of an attribute as in a declaration: str for bytes, a tuple for a list."""
    if attribute.type == AttributeProto.TENSOR:
        return as_tuples(numpy_helper.to_array(attribute.t).tolist())
    value = helper.get_attribute_value(attribute)
    items = [v.decode() if isinstance(v, bytes) else v for v in (value if isinstance(value, list) else [value])]
    return tuple(items) if isinstance(value, list) else items[0]


def as_tuples(value: Any) -> Any:
    """Return nested lists as nested tuples, as a declaration has them."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def _same(actual: object, wanted: object) -> bool:
    if isinstance(actual, tuple) and isinstance(wanted, tuple):
        return len(actual) == len(wanted) and all(map(_same, actual, wanted))
    if isinstance(actual, float) and isinstance(wanted, float):
        return actual == wanted or (math.isnan(actual) and math.isnan(wanted))
    return actual == wanted
