"""The Python of the ONNX schema's shape inference for sizes. Each size is a Dimension: a number, a name, or unknown.

The variables of the template of schema.py: the ONNX schema and its shape inference.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opmatrix.signature import versions
from opmatrix.signature.python_source import bracket, literal
from opmatrix.signature.signature import is_required, node_type, onnx_kind, onnx_name, onnx_value
from opmatrix.sizes.expressions import FURTHER, Term, terms
from opmatrix.sizes.rules import around, definitions, divisors, further_input, kernel_dims, kernel_names, replace_names
from opmatrix.sizes.values import summary
from opmatrix.sizes.variadic import counter, has_own_shapes, sure_inputs
from opmatrix.spec import Attribute, AttributeValue, Dims, FromKernel, Input, OpSpec, Output, SameAs

UNKNOWN = "onnx.TensorShapeProto.Dimension()"


@dataclass(frozen=True, kw_only=True)
class OnnxSizes:
    """The shape of an output: one expression for each of its sizes, or one that has all of them, or None."""

    sizes: tuple[str, ...] = ()
    all: str | None = None


def shape_source(spec: OpSpec, output: Output) -> OnnxSizes:
    """Return the sizes of an output that has not the shape of an input."""
    match output.shape:
        case SameAs(input=str(name), replace=replace) | FromKernel(input=str(name), replace=replace):
            decided = kernel_names(spec, output.shape)
            sizes = [
                "None" if dim is None else UNKNOWN if dim in decided else size(spec, dim) for dim in replace.values()
            ]
            changed = [f"({_axis(spec, key)}, {found})" for key, found in zip(replace, sizes, strict=True)]
            return OnnxSizes(all=f"with_replaced(context, {_index(spec, name)}, {', '.join(changed)})")
        case Dims(dims=dims) if FURTHER in dims:
            split = dims.index(FURTHER)
            before, behind = ([size(spec, dim) for dim in part] for part in (dims[:split], dims[split + 1 :]))
            return OnnxSizes(all=f"with_further({_further(spec)}, [{', '.join(before)}], [{', '.join(behind)}])")
        case Dims(dims=dims):
            return OnnxSizes(sizes=tuple(size(spec, dim) for dim in dims))
        case FromKernel() as rule:
            known = kernel_dims(spec, rule)
            return OnnxSizes(sizes=tuple(UNKNOWN if dim is None else size(spec, dim) for dim in known))
    raise ValueError(f"output {output.name!r} has no shape rule")


def size(spec: OpSpec, dim: str | int) -> str:
    """Return the Python of one size."""
    if isinstance(dim, int):
        return f"onnx.TensorShapeProto.Dimension(dim_value={dim})"
    if dim.isidentifier():
        return _name(spec, dim)
    used = terms(dim)
    if len(used) == 1 and used[0].key == dim:
        return _term(spec, used[0])
    names = {term.key: _variable(term.key) for term in used}
    text = dim if all(name.isidentifier() for name in names) else ast.unparse(replace_names(dim, names))
    values = ", ".join(_term(spec, term) for term in used)
    return f"computed(lambda {', '.join(names.values())}: {text}, {values})"


def _variable(key: str) -> str:
    """Return a variable for a term: ``stride_0`` for ``stride[0]``."""
    if key.isidentifier():
        return key
    return re.sub(r"\W+", "_", key.replace("[-", "[back_").replace("...", "further")).strip("_") + "_"


def _term(spec: OpSpec, term: Term) -> str:
    match term.kind:
        case "product":
            return f"product_of({_further(spec)})"
        case "rank":
            return f"rank_of(context, {_index(spec, term.of)})"
        case "size":
            return f"size(context, {_index(spec, term.of)}, {_axis(spec, term.at)})"
        case "item":
            name, default = _attribute(spec, term.of)
            return f"item_of(context, {name}, {term.at}, {literal(default)})"
    return _name(spec, term.key)


def _name(spec: OpSpec, name: str) -> str:
    """Return a size of an input, required ones first, or the value of an attribute."""
    if (known := definitions(spec).get(name)) is not None:
        return size(spec, known[0])
    attribute, default = _attribute(spec, name)
    return f"attribute(context, {attribute}, {default})"


def _axis(spec: OpSpec, at: int | str) -> str:
    """Return the Python of an axis: a number, or the value of the attribute that names it, or None."""
    if isinstance(at, int):
        return str(at)
    attribute, default = _attribute(spec, at)
    return f"axis_of(context, {attribute}, {default})"


def _attribute(spec: OpSpec, name: str) -> tuple[str, AttributeValue | None]:
    """Return the Python of an attribute's name in the node, and its default."""
    found = next(a for a in spec.attributes if a.name == name)
    return literal(onnx_name(found)), found.default


def _index(spec: OpSpec, name: str) -> int:
    return [i.name for i in spec.inputs].index(name)


def _further(spec: OpSpec) -> str:
    part = further_input(spec)
    assert part is not None
    front, back = around(part)
    return f"further_of(context, {_index(spec, part.name)}, {front}, {back})"


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
    _, *later = versions.versions(spec)
    return {
        "spec": spec,
        "onnx_inputs": [_parameter(spec, part) for part in spec.inputs],
        "onnx_outputs": [_parameter(spec, part) for part in spec.outputs],
        "onnx_constraints": [(v, [onnx_type(spec, dtype) for dtype in dtypes]) for v, dtypes in spec.types.items()],
        "required": [str(n) for n, i in enumerate(spec.inputs) if i in sure_inputs(spec)],
        "onnx_attributes": [_attribute_source(a) for a in attributes if a.since is None],
        "later_attributes": [(v, [_attribute_source(a) for a in attributes if a.since == v]) for v in later],
        "mark": versions.MARK,
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


def _attribute_source(attribute: Attribute) -> str:
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
        found = shape_source(spec, output)
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
