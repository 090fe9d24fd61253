"""The gates on inputs and outputs of a model: names, dtypes and shapes, as written and as onnx infers them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import onnx
from onnx import ModelProto, ValueInfoProto, defs

from opmatrix.errors import one_line
from opmatrix.export.expected_model import ExpectedModel
from opmatrix.export.signature import Shape, ValueInfo, element_dtype


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
    kind: str, found: Sequence[ValueInfoProto], wanted: Sequence[ValueInfo], *, partly: bool = False
) -> Iterator[str]:
    names, declared = [v.name for v in found], [v.name for v in wanted]
    if names != declared:
        yield f"{kind}s are named {names}, declared: {declared}. Pass them as {kind}_names="
        return
    for value, want in zip(found, wanted, strict=True):
        dtype, shape = element_dtype(value.type.tensor_type.elem_type) or "unknown", _shape(value)
        if dtype != want.dtype:
            yield f"{kind} {want.name!r} has the dtype {dtype}, declared: {want.dtype}. Fix the type the lowering sets"
        if not _fits(shape, want.shape, partly=partly):
            remedy = _shape_remedy(shape, want.shape)
            yield f"{kind} {want.name!r} has the shape {shape}, declared: {want.shape}. {remedy}"


def _fits(found: tuple[int | str | None, ...] | None, wanted: Shape, *, partly: bool) -> bool:
    """Return whether sizes and names are equal; None in `wanted` is a dynamic size with any name or none.

    With `partly`, an unknown shape or a dynamic size matches everything.
    """
    if found is None or len(found) != len(wanted):
        return found is None and partly
    if partly:
        return all(f == w for f, w in zip(found, wanted, strict=True) if isinstance(f, int))
    return all(f == w if w is not None else not isinstance(f, int) for f, w in zip(found, wanted, strict=True))


def _shape(value: ValueInfoProto) -> tuple[int | str | None, ...] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(d.dim_param or (d.dim_value if d.HasField("dim_value") else None) for d in tensor.shape.dim)


def _shape_remedy(found: Sequence[int | str | None] | None, wanted: Shape) -> str:
    if found is None or len(found) != len(wanted):
        return "The rank is lost: the symbolic must call setType, the ONNX schema needs an inference function"
    pairs = list(zip(found, wanted, strict=True))
    if any(isinstance(f, int) and not isinstance(w, int) for f, w in pairs):
        return "A dynamic size was baked in: something read it as a number while tracing"
    if any(not isinstance(f, int) and isinstance(w, int) for f, w in pairs):
        return "A static size is lost: the symbolic must call setType, the fake kernel must keep sizes"
    return "Fix the shape rule, or the names in the model's 'dynamic'"
