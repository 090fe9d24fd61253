"""The variables of the template of schema.py: the ONNX schema and its shape inference.

In the inference each size is a Dimension: a number, a name, or unknown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any

from opmatrix.project.dtypes import element_name
from opmatrix.signature import versions
from opmatrix.signature.python_source import bracket, literal
from opmatrix.signature.signature import is_required, node_type, onnx_kind, onnx_name, onnx_value
from opmatrix.sizes.expressions import FURTHER, Term, replace_terms, terms
from opmatrix.sizes.rules import around, definitions, divisors, further_input, kernel_dims, kernel_names
from opmatrix.sizes.values import summary
from opmatrix.sizes.variadic import counter, has_own_shapes, sure_inputs
from opmatrix.spec import Attribute, Dims, FromKernel, Input, OpSpec, Output, SameAs

UNKNOWN = "onnx.TensorShapeProto.Dimension()"


class OnnxSizes:
    """The Python of sizes in the shape inference."""

    def __init__(self, spec: OpSpec) -> None:
        self._spec = spec
        self.index = {part.name: n for n, part in enumerate(spec.inputs)}
        # Of each attribute: the Python of its name in the node, and its default.
        self._attributes = {a.name: (literal(onnx_name(a)), a.default) for a in spec.attributes}

    def __call__(self, dim: str | int) -> str:
        """Return the Python of one size."""
        if isinstance(dim, int):
            return f"onnx.TensorShapeProto.Dimension(dim_value={dim})"
        if dim.isidentifier():
            return self._name(dim)
        used = terms(dim)
        if len(used) == 1 and used[0].key == dim:
            return self._term(used[0])
        # A variable for each term: ``stride_0`` for ``stride[0]``.
        keys = {t.key: t.key.replace("[-", "[back_").replace("...", "further") for t in used}
        names = {k: k if k.isidentifier() else re.sub(r"\W+", "_", text).strip("_") + "_" for k, text in keys.items()}
        text = dim
        if not all(name.isidentifier() for name in names):
            text = ast.unparse(replace_terms(dim, lambda term: ast.Name(names[term.key])))
        return f"computed(lambda {', '.join(names.values())}: {text}, {', '.join(map(self._term, used))})"

    def _term(self, term: Term) -> str:
        match term.kind:
            case "product":
                return f"product_of({self.further()})"
            case "rank":
                return f"rank_of(context, {self.index[term.of]})"
            case "size":
                return f"size(context, {self.index[term.of]}, {self.axis(term.at)})"
            case "item":
                name, default = self._attributes[term.of]
                return f"item_of(context, {name}, {term.at}, {literal(default)})"
        return self._name(term.key)

    def _name(self, name: str) -> str:
        """Return a size of an input, required ones first, or the value of an attribute."""
        if (known := definitions(self._spec).get(name)) is not None:
            return self(known[0])
        return "attribute(context, {}, {})".format(*self._attributes[name])

    def axis(self, at: int | str) -> str:
        """Return the Python of an axis: a number, or the value of the attribute that names it, or None."""
        return str(at) if isinstance(at, int) else "axis_of(context, {}, {})".format(*self._attributes[at])

    def further(self) -> str:
        part = further_input(self._spec)
        assert part is not None
        front, back = around(part)
        return f"further_of(context, {self.index[part.name]}, {front}, {back})"


def variables(spec: OpSpec) -> dict[str, Any]:
    """Return the variables of schema.py's template."""
    outputs = [_inferred(spec, output) for output in spec.outputs]
    attributes = [a for a in spec.attributes if not a.torch_only]
    called = " ".join(text for output in outputs for text in (*output["sizes"], output["every"] or ""))
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
        "reads_switches": any(output["off"] for output in outputs),
        "reads_elements": any(output["element"].startswith("element(") for output in outputs),
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
    return declared if declared in spec.types else f"tensor({element_name(declared).lower()})"


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
    """Return one attribute of the schema. Its default is an attribute of its name; an empty list needs a type."""
    name, kind = literal(onnx_name(attribute)), onnx_kind(attribute.kind)
    value = f"defs.OpSchema.AttrType.{kind}"
    if (default := attribute.default) is not None:
        default = default if attribute.kind.startswith("float") else onnx_value(attribute, default)
        typed = f", attr_type=onnx.AttributeProto.{kind}" if default == () else ""
        value = f"helper.make_attribute({name}, {literal(default)}{typed})"
    arguments = [name, value, literal(attribute.doc), *(["required=False"] if attribute.optional else [])]
    return bracket("defs.OpSchema.Attribute(", arguments, ")")


def _inferred(spec: OpSpec, output: Output) -> dict[str, Any]:
    """Return the template's variables for one output: its element type, and its shape."""
    size = OnnxSizes(spec)
    sizes: Iterable[str] = ()
    shape, every, own, off = None, None, None, None
    match output.shape:
        case SameAs(input=name) if output.variadic and has_own_shapes(output):
            rule, own = f"the shapes of {name}", size.index[name]
            at = f"{own} + at_{output.name}" if own else f"at_{output.name}"
            shape = f"context.get_input_type({at}).tensor_type"
        case SameAs(input=name, replace=replace) if not replace:
            rule = f"the shape of {name}"
            shape = f"context.get_input_type({size.index[name]}).tensor_type"
        case SameAs(input=str(name), replace=replace) | FromKernel(input=str(name), replace=replace):
            rule = f"the shape of {name} with other axes"
            rule += ", which the kernel finds in part" if isinstance(output.shape, FromKernel) else ""
            decided = kernel_names(spec, output.shape)
            found = ["None" if dim is None else UNKNOWN if dim in decided else size(dim) for dim in replace.values()]
            changed = [f"({size.axis(key)}, {new})" for key, new in zip(replace, found, strict=True)]
            every = f"with_replaced(context, {size.index[name]}, {', '.join(changed)})"
        case Dims(dims=dims):
            rule = f"the shape ({', '.join(map(str, dims))})"
            if FURTHER in dims:
                split = dims.index(FURTHER)
                before, behind = (", ".join(size(d) for d in part) for part in (dims[:split], dims[split + 1 :]))
                every = f"with_further({size.further()}, [{before}], [{behind}])"
            else:
                sizes = (size(dim) for dim in dims)
        case FromKernel(dims=dims) as kernel:
            rule = "a shape that the kernel finds"
            if dims is not None:
                rule = f"the shape ({', '.join(map(str, dims))}), which the kernel finds in part"
            sizes = (UNKNOWN if dim is None else size(dim) for dim in kernel_dims(spec, kernel))
    if isinstance(output.optional, str):
        switch = next(a for a in spec.attributes if a.name == output.optional)
        off = f"is_off(context, {literal(onnx_name(switch))}, {literal(switch.default is False)})"
    return {
        "name": output.name,
        "rule": rule,  # the comment above it
        "element": _element(spec, node_type(output)),
        "shape": shape,  # or `sizes`, each of its sizes
        "sizes": tuple(sizes),
        "every": every,  # the expression of all sizes, where the rank depends on an input
        "optional": bool(output.optional),
        "off": off,  # the condition under which an attribute says that there is none
        "variadic": bool(output.variadic),
        "own": own,  # the input whose tensors give the tensors of a variadic one their shapes
    }


def _element(spec: OpSpec, declared: str) -> str:
    """Return the element type of a declared type: that of the first input that has it, required inputs first."""
    if declared in spec.types:
        of_type = sorted((not is_required(p), n) for n, p in enumerate(spec.inputs) if p.type == declared)
        maybe_absent, first = of_type[0]
        if maybe_absent:
            return f"element(context, {', '.join(str(n) for _, n in of_type)})"
        return f"context.get_input_type({first}).tensor_type.elem_type"
    return f"onnx.TensorProto.{element_name(declared)}"
