"""The variables of the template of schema.py: the ONNX schema and its shape inference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opmatrix.codegen import onnx_sizes
from opmatrix.declaration import schema_versions
from opmatrix.declaration.declared_sizes import divisors
from opmatrix.declaration.python_source import bracket, literal
from opmatrix.declaration.torch_signature import is_required, node_type, onnx_kind, onnx_name, onnx_value
from opmatrix.declaration.value_rules import summary
from opmatrix.declaration.variadic_outputs import counter, has_own_shapes, sure_inputs
from opmatrix.spec import Attribute, Dims, FromKernel, Input, OpSpec, Output, SameAs

_ONNX_NAMES: Mapping[str, str] = {
    "float32": "float", "float64": "double",
    "float8_e4m3fn": "float8e4m3fn", "float8_e5m2": "float8e5m2",
    "float8_e4m3fnuz": "float8e4m3fnuz", "float8_e5m2fnuz": "float8e5m2fnuz",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Inferred:
    """One output: its element type, and its shape or, in `sizes`, each of its sizes."""

    name: str
    rule: str  # the comment above it
    element: str
    shape: str | None
    sizes: tuple[str, ...]
    every: str | None  # the expression of all sizes, where the rank depends on an input
    optional: bool
    off: str | None  # the condition under which an attribute says that there is none
    variadic: bool
    own: int | None  # the input whose tensors give the tensors of a variadic one their shapes


def variables(spec: OpSpec) -> dict[str, Any]:
    """Return the variables of schema.py's template."""
    outputs = [_inferred(spec, output) for output in spec.outputs]
    attributes = [a for a in spec.attributes if not a.torch_only]
    called = " ".join(text for output in outputs for text in (*output.sizes, output.every or ""))
    _, *later = schema_versions.versions(spec)
    return {
        "spec": spec,
        "onnx_inputs": [_parameter(spec, part) for part in spec.inputs],
        "onnx_outputs": [_parameter(spec, part) for part in spec.outputs],
        "onnx_constraints": [(v, [onnx_type(spec, dtype) for dtype in dtypes]) for v, dtypes in spec.types.items()],
        "required": [str(n) for n, i in enumerate(spec.inputs) if i in sure_inputs(spec)],
        "onnx_attributes": [_attribute(a) for a in attributes if a.since is None],
        "later_attributes": [(v, [_attribute(a) for a in attributes if a.since == v]) for v in later],
        "mark": schema_versions.MARK,
        "defaults": later or any(a.default is not None for a in attributes),
        "inferred": outputs,
        "reads_switches": any(output.off for output in outputs),
        "reads_elements": any(output.element.startswith("element(") for output in outputs),
        **{f"reads_{name}": f"{name}_of(" in called for name in ("axis", "item", "rank", "further", "product")},
        **{f"reads_{name}": f"{name}(" in called for name in ("with_replaced", "with_further")},
        "reads_sizes": "size(context" in called,
        "reads_from_back": bool(re.search(r"size\(context, \d+, (-|axis)", called)),
        "reads_attributes": "attribute(context" in called,
        "computes": "computed(" in called,
        "divides": bool(divisors(spec)),
    }


def onnx_type(spec: OpSpec, declared: str) -> str:
    """Return a declared type in an ONNX schema: a type variable, or ``tensor(double)``."""
    return declared if declared in spec.types else f"tensor({_ONNX_NAMES.get(declared, declared)})"


def _parameter(spec: OpSpec, part: Input | Output) -> list[str]:
    """Return the arguments of a FormalParameter."""
    doc = part.doc
    if isinstance(part, Input) and part.values:  # an ONNX schema has no other place for it
        doc = "; ".join(filter(None, (doc.rstrip("."), f"values: {summary(part.values)}")))
    arguments = [literal(part.name), literal(onnx_type(spec, node_type(part))), literal(doc)]
    if part.variadic:
        least = "1" if isinstance(part, Output) or part is counter(spec) else "0"
        return [*arguments, "param_option=defs.OpSchema.FormalParameterOption.Variadic", f"min_arity={least}"]
    if part.optional:
        return [*arguments, "param_option=defs.OpSchema.FormalParameterOption.Optional"]
    return arguments


def _attribute(attribute: Attribute) -> str:
    """Return one attribute of the schema."""
    value = _default(attribute) or f"defs.OpSchema.AttrType.{onnx_kind(attribute.kind)}"
    arguments = [literal(onnx_name(attribute)), value, literal(attribute.doc)]
    arguments += ["required=False"] if attribute.optional else []
    return bracket("defs.OpSchema.Attribute(", arguments, ")")


def _default(attribute: Attribute) -> str | None:
    """Return the default as an attribute of the same name; an empty list needs its type."""
    if attribute.default is None:
        return None
    value = attribute.default if attribute.kind.startswith("float") else onnx_value(attribute, attribute.default)
    typed = f", attr_type=onnx.AttributeProto.{onnx_kind(attribute.kind)}" if value == () else ""
    return f"helper.make_attribute({literal(onnx_name(attribute))}, {literal(value)}{typed})"


def _inferred(spec: OpSpec, output: Output) -> Inferred:
    shape: str | None = None
    sizes: tuple[str, ...] = ()
    every: str | None = None
    own = None
    match output.shape:
        case SameAs(input=name) if output.variadic and has_own_shapes(output):
            rule, own = f"the shapes of {name}", [i.name for i in spec.inputs].index(name)
            at = f"{own} + at_{output.name}" if own else f"at_{output.name}"
            shape = f"context.get_input_type({at}).tensor_type"
        case SameAs(input=name, replace=replace) if not replace:
            rule = f"the shape of {name}"
            shape = f"context.get_input_type({[i.name for i in spec.inputs].index(name)}).tensor_type"
        case SameAs(input=name):
            rule = f"the shape of {name} with other axes"
        case FromKernel(input=str(name)):
            rule = f"the shape of {name} with other axes, which the kernel finds in part"
        case Dims(dims=dims):
            rule = f"the shape ({', '.join(map(str, dims))})"
        case FromKernel(dims=None):
            rule = "a shape that the kernel finds"
        case FromKernel(dims=dims):
            rule = f"the shape ({', '.join(map(str, dims or ()))}), which the kernel finds in part"
    if shape is None:
        found = onnx_sizes.shape(spec, output)
        sizes, every = found.sizes, found.all
    element = _element(spec, node_type(output))
    off = None
    if isinstance(output.optional, str):
        switch = next(a for a in spec.attributes if a.name == output.optional)
        off = f"is_off(context, {literal(onnx_name(switch))}, {literal(switch.default is False)})"
    return Inferred(
        name=output.name, rule=rule, element=element, shape=shape, sizes=sizes, every=every,
        optional=bool(output.optional), off=off, variadic=bool(output.variadic), own=own,
    )  # fmt: skip


def _element(spec: OpSpec, declared: str) -> str:
    """Return the element type of a declared type: that of the first input that has it, required inputs first."""
    if declared in spec.types:
        of_type = sorted((not is_required(p), n) for n, p in enumerate(spec.inputs) if p.type == declared)
        maybe_absent, first = of_type[0]
        if maybe_absent:
            return f"element(context, {', '.join(str(n) for _, n in of_type)})"
        return f"context.get_input_type({first}).tensor_type.elem_type"
    return f"onnx.TensorProto.{_ONNX_NAMES.get(declared, declared).upper()}"
