"""Lowerings as translation functions of the dynamo (torch.export) exporter. Needs torch, onnx and onnxscript."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import onnx_ir
import torch
from numpy.typing import ArrayLike
from onnx import defs
from onnxscript import evaluator, values

from opmatrix.basics.errors import ExportError
from opmatrix.data.arrays import numpy_dtype
from opmatrix.lowering.call import Lowered
from opmatrix.lowering.graph import Graph, NodeAttribute, Value
from opmatrix.project.dtypes import DTYPES, element_name
from opmatrix.signature.signature import Constant, dtype_of, torch_arguments
from opmatrix.sizes.known import Known
from opmatrix.sizes.variadic import nested, shapes_by_input, variadic_output
from opmatrix.spec import Attribute, AttributeKind, DType

_TENSORS = [f"tensor({element_name(dtype).lower()})" for dtype in DTYPES]
_EMPTY: Mapping[str, Callable[..., onnx_ir.Attr]] = {
    "f": onnx_ir.AttrFloat32s, "i": onnx_ir.AttrInt64s, "s": onnx_ir.AttrStrings,
}  # fmt: skip
_ANNOTATIONS: Mapping[AttributeKind, Any] = {
    "float": float, "int": int, "string": str, "bool": bool,
    "floats": Sequence[float], "ints": Sequence[int], "strings": Sequence[str], "bools": Sequence[bool],
}  # fmt: skip

_CONSTANTS: Mapping[str, Any] = {"float": float, "int": int, "SymInt": int, "bool": bool}


class DynamoGraph(Graph):
    """`Graph` for a translation function."""

    def op(self, name: str, *inputs: Value | None, outputs: int = 1, **attributes: Any) -> Any:
        domain, op_type, version, written = self._node(name, len(inputs), attributes)
        schema = _node_schema(domain, op_type, version, inputs=len(inputs), outputs=outputs, attributes=written)
        op = values.Op(values.Opset(domain, version), op_type, schema)
        attributes_of_node: dict[str, Any] = {a.name: a.value for a in written}
        for a in written:
            if a.letter == "t":
                attributes_of_node[a.name] = onnx_ir.tensor(a.value)
            elif a.value == []:
                attributes_of_node[a.name] = _EMPTY[a.letter](a.name, [])
        recorder: Any = evaluator.default()  # as Op.__call__ does, which takes no attribute named "self"
        if hasattr(recorder, "eval"):  # torch 2.6 to 2.13
            return recorder.eval(schema, inputs, attributes_of_node)
        return recorder.eval_op(op, inputs, attributes_of_node)

    def constant(self, value: ArrayLike, dtype: DType) -> Value:
        return self.op("Constant", value_t=numpy_dtype(dtype).type(value))

    def dtype(self, value: Value) -> DType:
        if value.dtype is None:
            raise ExportError("g.dtype() is known for the operator's own inputs alone")
        return value.dtype.numpy().name  # type: ignore[no-any-return]  # onnxscript has no types for it

    def rank(self, value: Value) -> int:
        return len(value.shape)

    def _size(self, value: Value, axis: int) -> int | None:
        size = value.shape[axis]
        return size if isinstance(size, int) else None


def table(
    lowered: Lowered, opset: int, versions: Mapping[str, int], overloads: Sequence[torch._ops.OpOverload]
) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return a custom_translation_table with the lowering for each of `overloads`, for exports at `opset`."""
    return {overload: translation(lowered, opset, versions, overload) for overload in overloads}


def translation(
    lowered: Lowered, opset: int, versions: Mapping[str, int], overload: torch._ops.OpOverload
) -> Callable[..., Any]:
    """Return a lowering as a translation function of `overload`.

    Its parameters have the names of the overload's schema: torch 2.6 to 2.9 silently ignore a function with others.
    Annotated parameters are constants.
    """
    arguments = torch_arguments(lowered.spec)
    schema = overload._schema
    if len(schema.arguments) != len(arguments):
        raise ExportError(f"{lowered.spec.name}: {schema} does not have the {len(arguments)} declared arguments")
    names = [a.name for a in schema.arguments]

    def run(*positional: Any, **named: Any) -> Any:
        values = known | dict(zip(names, positional, strict=False)) | named
        if missing := [name for name in names if name not in values]:
            raise ExportError(f"{lowered.spec.name}: {schema} is called without {', '.join(missing)}")
        ordered = [values[name] for name in names]
        outputs = lowered(DynamoGraph(opset, versions), ordered)
        if variadic_output(lowered.spec) and len(lowered.spec.outputs) > 1:
            return _with_list(lowered, ordered, outputs)
        return nested(lowered.spec, outputs)

    annotations = {
        name: _CONSTANTS[a.type] if isinstance(a.source, Constant) else _annotation(a.source)
        for name, a in zip(names, arguments, strict=True)
        if isinstance(a.source, Attribute) or (isinstance(a.source, Constant) and a.type in _CONSTANTS)
    }
    empty = inspect.Parameter.empty
    defaults = [a.default if a.has_default or a.type == "Tensor?" else empty for a in arguments]
    known = {name: default for name, default in zip(names, defaults, strict=True) if default is not empty}
    required = max((n + 1 for n, default in enumerate(defaults) if default is empty), default=0)
    defaults[:required] = [empty] * required  # Python allows no default before a required parameter
    # A parameter whose name is a keyword of Python, such as "from", can only be positional, and those before it.
    last = max((n for n, name in enumerate(names) if keyword.iskeyword(name)), default=-1)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # mypy knows no __signature__ of functions
        [
            inspect.Parameter(name, kinds[n <= last], default=default, annotation=annotations.get(name, empty))
            for n, (name, default) in enumerate(zip(names, defaults, strict=True))
        ]
    )
    run.__annotations__ = annotations
    run.__name__ = lowered.spec.name
    return run


class _Tensors(list[Value]):
    """The tensors of a variadic output behind another output. torch.onnx names every output, and asks what made it; a
    list among them it does not expect (torch 2.6 to 2.15). What the program takes from it, it does find."""

    name = ""

    def producer(self) -> None:
        """Return nothing: there is no one node whose name follows from that of the list."""


def _with_list(lowered: Lowered, arguments: Sequence[Any], outputs: Sequence[Value]) -> tuple[Any, ...]:
    """Return outputs, of which the last is a list: with the declared types, which torch.onnx sets in no list."""
    spec, tensors = lowered.called(arguments), lowered.tensors(arguments)
    shapes = shapes_by_input(
        (part, [size if isinstance(size, int) else size.value for size in tensor.shape])
        for part, tensor in tensors
        if tensor.shape is not None
    )
    attributes = {a.source.name: value for a, value in zip(torch_arguments(lowered.spec), arguments, strict=True)}
    known = Known(spec=spec, shapes=shapes, attributes=attributes)
    *fixed, several = nested(lowered.spec, outputs)
    for output, tensor in zip(spec.outputs[len(fixed) :], several, strict=True):
        of_type = [t.dtype for part, t in tensors if part.type == output.type and output.type in spec.types]
        tensor.dtype = next(iter(of_type), None) or onnx_ir.DataType.from_numpy(numpy_dtype(dtype_of(output.type, {})))
        if (sizes := known.output(output)) is not None:
            tensor.shape = onnx_ir.Shape(sizes)
    return (*fixed, _Tensors(several))


def _annotation(attribute: Attribute) -> Any:
    kind = _ANNOTATIONS[attribute.kind]
    return Optional[kind] if attribute.optional else kind  # noqa: UP045 - kind | None is no type for onnxscript


def _node_schema(
    domain: str, op_type: str, version: int, *, inputs: int, outputs: int, attributes: Sequence[NodeAttribute]
) -> defs.OpSchema:
    """Return a schema for one node alone. With the real one, torch silently drops or reorders arguments."""
    optional = defs.OpSchema.FormalParameterOption.Optional
    return defs.OpSchema(
        op_type,
        domain,
        version,
        # A name that no attribute has: torch would take the attribute for the input.
        inputs=[defs.OpSchema.FormalParameter(f"{n}", f"I{n}", param_option=optional) for n in range(inputs)],
        outputs=[defs.OpSchema.FormalParameter(f"o{n}", f"O{n}") for n in range(outputs)],
        type_constraints=[(f"I{n}", _TENSORS, "") for n in range(inputs)]
        + [(f"O{n}", _TENSORS, "") for n in range(outputs)],
        attributes=[
            defs.OpSchema.Attribute(a.name, getattr(defs.OpSchema.AttrType, a.type), required=False) for a in attributes
        ],
    )
