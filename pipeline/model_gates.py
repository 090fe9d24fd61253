"""What every exported model must be. Each gate is a pure function that yields what is wrong, and what to do about it.

Needs onnx alone. The gates judge a model against the declaration, never against what an exporter says about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import onnx
from onnx import AttributeProto, ModelProto, NodeProto, ValueInfoProto, defs, helper

from pipeline.errors import ExportError, did_you_mean
from pipeline.matrix import Cell, illegal
from pipeline.schema import attribute_values, stored
from pipeline.spec import Lowering, Model, OpSpec
from pipeline.value_info import Signature, ValueInfo, signature

# What ONNX Runtime 1.18 to 1.23 can read, and the highest that torch 2.13 writes. A newer ONNX Runtime reads more.
MAX_IR_VERSION = 10


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What a model is judged by: the declaration, the ONNX schema that follows from it, and the cell."""

    spec: OpSpec
    model: Model
    lowering: Lowering
    cell: Cell
    schema: defs.OpSchema

    def __str__(self) -> str:
        return f"{self.spec.name}-{self.lowering}-{self.model.name}@{self.cell.export_name}"

    @property
    def node(self) -> str:
        return f"{self.spec.onnx.domain}::{self.spec.onnx.op_type}"

    @property
    def signature(self) -> Signature:
        return signature(self.spec, self.model)


def check_legal(spec: OpSpec, cell: Cell) -> None:
    """Raise ExportError for a cell in which `spec` cannot be exported at all."""
    if reason := illegal(cell.exporter, cell.opset):
        raise ExportError(f"{spec.name}@{cell.export_name}: {reason}. Choose a legal opset")
    if cell.opset < spec.min_opset:
        raise ExportError(
            f"{spec.name}@{cell.export_name}: its minimum opset is {spec.min_opset}; "
            f"choose a higher opset, or lower min_opset in ops/{spec.name}/spec.py"
        )


def check(proto: ModelProto, demand: Demand) -> None:
    """Raise ExportError with everything that any gate finds."""
    found = [problem for gate in GATES for problem in gate(proto, demand)]
    if found:
        raise ExportError("\n".join(f"{demand}: {problem}" for problem in found))


def nodes(proto: ModelProto, demand: Demand) -> Iterator[str]:
    """The declared node, once, and no other; nothing of the example stored in the model."""
    found = [_qualified(n) for n in proto.graph.node]
    shown = ", ".join(found) or "none"
    if demand.node not in found:
        yield (
            f"no node {demand.node}, found: {shown}. It was replaced by a built-in or by its decomposition: register "
            f"the symbolic at opset {demand.cell.opset} itself (legacy); key the translation table by the overload, "
            f"'.default', and give the operator no CompositeImplicitAutograd kernel (dynamo)"
        )
    elif found.count(demand.node) > 1:
        yield f"{found.count(demand.node)} nodes {demand.node}, allowed: one. Call the operator once in the model"
    if extra := sorted(set(found) - {demand.node}):
        yield f"unexpected nodes {', '.join(extra)} beside {demand.node}. Take them out of the lowering"
    stored_values = [*(i.name for i in proto.graph.initializer), *(f.name for f in proto.functions)]
    if stored_values:
        yield (
            f"initializers or functions {', '.join(stored_values)}, allowed: none. A tensor was taken for a constant "
            f"while tracing; pass it as an input of the model"
        )


def wiring(proto: ModelProto, demand: Demand) -> Iterator[str]:
    """The graph's inputs reach the node, and its outputs the graph's, in the order of the declaration."""
    for node in _declared_nodes(proto, demand):
        for what, found, wanted in (
            ("takes", list(node.input), [v.name for v in demand.signature.inputs]),
            ("gives", list(node.output), [v.name for v in demand.signature.outputs]),
        ):
            if found != wanted:
                yield f"{demand.node} {what} {found}, declared: {wanted}. Mend the order of arguments in the lowering"


def attributes(proto: ModelProto, demand: Demand) -> Iterator[str]:
    """Every attribute is written, defaults included, with the declared type and the model's value."""
    declared = {a.name: a for a in demand.spec.attributes}
    values = attribute_values(demand.spec, demand.model)
    for node in _declared_nodes(proto, demand):
        found = {a.name: a for a in node.attribute}
        for name in sorted(found.keys() - declared.keys()):
            yield f"unknown attribute {name!r}, declared: {', '.join(declared)}{did_you_mean(name, declared)}"
        for name, attribute in declared.items():
            if name not in found:
                yield (
                    f"attribute {name!r} is missing; ONNX Runtime would take its default, silently. Pass it as an "
                    f"attribute in the lowering, with its type as a suffix, not as an input"
                )
                continue
            wanted_type = attribute.kind.upper().replace("BOOL", "INT")
            found_type = AttributeProto.AttributeType.Name(found[name].type)
            wanted = stored(attribute, values[name])
            if found_type != wanted_type:
                yield (
                    f"attribute {name!r} has the type {found_type}, declared: {wanted_type}. ONNX Runtime reads it as "
                    f"absent: mend the suffix of its name in the lowering ({name}_f, {name}_i or {name}_s)"
                )
            elif not _same(got := helper.get_attribute_value(found[name]), wanted):
                yield (
                    f"attribute {name!r} is {got!r}, declared: {wanted!r}. A default differs between the torch schema, "
                    f"the lowering and the ONNX schema, or the lowering drops the argument"
                )


def opset_imports(proto: ModelProto, demand: Demand) -> Iterator[str]:
    """Opsets given are those asked for, and no others."""
    found = {o.domain: o.version for o in proto.opset_import}
    domain, cell = demand.spec.onnx.domain, demand.cell
    if found.get("") != cell.opset:
        yield (
            f"opset {found.get('')} was written, asked for: {cell.opset}. The exporter or its version converter chose "
            f"another one; take a legal opset, or another exporter"
        )
    if found.get(domain) != demand.model.domain_version:
        yield (
            f"domain {domain!r} is imported at version {found.get(domain)}, declared: {demand.model.domain_version}. "
            f"Pass it in custom_opsets= (legacy), or as the since version of the translation's schema (dynamo)"
        )
    if extra := sorted(found.keys() - {"", domain}):
        yield f"unexpected opset imports {extra}, allowed: '' and {domain!r}. Something lowers to another domain"


def graph_signature(proto: ModelProto, demand: Demand) -> Iterator[str]:
    """Names, dtypes and shapes of the graph's inputs and outputs are the declared ones."""
    wanted = demand.signature
    yield from _differences("input", proto.graph.input, wanted.inputs)
    yield from _differences("output", proto.graph.output, wanted.outputs)


def checker(proto: ModelProto, demand: Demand) -> Iterator[str]:
    """onnx's full check, with the schema registered: without one it accepts anything in a custom domain."""
    try:
        with registered(demand.schema):
            onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        yield f"onnx.checker refuses it: {_one_line(error)}"


def inference(proto: ModelProto, demand: Demand) -> Iterator[str]:
    """Strict shape inference finds the outputs' real dtypes and shapes by itself: nothing of what the exporter says."""
    bare = ModelProto()
    bare.CopyFrom(proto)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.type.tensor_type.ClearField("shape")
    try:
        with registered(demand.schema):
            inferred = onnx.shape_inference.infer_shapes(bare, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        yield f"shape inference fails: {_one_line(error)}. Mend the shape rule of the declaration"
        return
    for problem in _differences("output", inferred.graph.output, demand.signature.outputs):
        yield f"shape inference: {problem}"


def format_version(proto: ModelProto, demand: Demand) -> Iterator[str]:
    """ONNX Runtime can read the file."""
    if not 3 <= proto.ir_version <= MAX_IR_VERSION:
        yield (
            f"IR version {proto.ir_version}, allowed: 3 to {MAX_IR_VERSION}, which ONNX Runtime 1.18 and newer read. "
            f"Set ir_version before saving"
        )


def traces(proto: ModelProto, demand: Demand) -> Iterator[str]:
    """Nothing in the file says where or how it was made: equal models have equal bytes in every checkout."""
    graph = proto.graph
    parts = [proto, graph, *graph.node, *graph.input, *graph.output, *graph.value_info]
    if any(part.metadata_props or part.doc_string for part in parts):
        yield "metadata or a doc string with paths of this machine is left in it. Strip them after the export"
    if any(t.data_location == onnx.TensorProto.EXTERNAL for t in graph.initializer):
        yield "a tensor lies in an external file. Export with external_data=False"


GATES: Sequence[Callable[[ModelProto, Demand], Iterator[str]]] = (
    nodes, wiring, attributes, opset_imports, graph_signature, checker, inference, format_version, traces,
)  # fmt: skip


@contextmanager
def registered(schema: defs.OpSchema) -> Iterator[None]:
    """Let onnx know `schema` for a while: registered twice, or left registered, it would judge other models."""
    defs.register_schema(schema)
    try:
        yield
    finally:
        defs.deregister_schema(schema.name, schema.since_version, schema.domain)


def _qualified(node: NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def _declared_nodes(proto: ModelProto, demand: Demand) -> list[NodeProto]:
    return [n for n in proto.graph.node if _qualified(n) == demand.node]


def _same(found: object, wanted: object) -> bool:
    if isinstance(found, float) and isinstance(wanted, float):
        return found == wanted or (math.isnan(found) and math.isnan(wanted))
    return found == wanted


def _differences(kind: str, found: Sequence[ValueInfoProto], wanted: Sequence[ValueInfo]) -> Iterator[str]:
    names, declared = [v.name for v in found], [v.name for v in wanted]
    if names != declared:
        yield f"{kind}s are named {names}, declared: {declared}. Pass them as {kind}_names="
        return
    for value, want in zip(found, wanted, strict=True):
        dtype, shape = _dtype(value), _shape(value)
        if dtype != want.dtype:
            yield f"{kind} {want.name!r} has the dtype {dtype}, declared: {want.dtype}. Mend the type the lowering sets"
        if shape != want.shape:
            remedy = _shape_remedy(shape, want.shape)
            yield f"{kind} {want.name!r} has the shape {shape}, declared: {want.shape}. {remedy}"


def _dtype(value: ValueInfoProto) -> str:
    number = value.type.tensor_type.elem_type
    return str(helper.tensor_dtype_to_np_dtype(number)) if number else "unknown"


def _shape(value: ValueInfoProto) -> tuple[int | str | None, ...] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(d.dim_param or (d.dim_value if d.HasField("dim_value") else None) for d in tensor.shape.dim)


def _shape_remedy(found: Sequence[int | str | None] | None, wanted: Sequence[int | str]) -> str:
    if found is None or len(found) != len(wanted):
        return "The rank is lost: the symbolic must call setType, the ONNX schema needs an inference function"
    pairs = list(zip(found, wanted, strict=True))
    if any(isinstance(f, int) and isinstance(w, str) for f, w in pairs):
        return "A dynamic size was baked in: something read it as a number while tracing"
    if any(not isinstance(f, int) and isinstance(w, int) for f, w in pairs):
        return "A static size is lost: the symbolic must call setType, the fake kernel must keep sizes"
    return "Mend the shape rule, or the names in the model's 'dynamic'"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
