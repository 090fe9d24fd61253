"""The Python of the ONNX schema's shape inference for sizes. Each size is a Dimension: a number, a name, or unknown."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from opmatrix.declaration.declared_sizes import kernel_dims, kernel_names
from opmatrix.declaration.python_source import literal
from opmatrix.declaration.size_expressions import FURTHER, Term, terms
from opmatrix.declaration.size_rules import around, definitions, further_input, replace_names
from opmatrix.declaration.torch_signature import onnx_name
from opmatrix.spec import AttributeValue, Dims, FromKernel, OpSpec, Output, SameAs

UNKNOWN = "onnx.TensorShapeProto.Dimension()"


@dataclass(frozen=True, kw_only=True)
class OnnxSizes:
    """The shape of an output: one expression for each of its sizes, or one that has all of them, or None."""

    sizes: tuple[str, ...] = ()
    all: str | None = None


def shape(spec: OpSpec, output: Output) -> OnnxSizes:
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
