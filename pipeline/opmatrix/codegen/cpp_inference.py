"""The C++ of shape inference in ONNX Runtime: the declared sizes, computed with those that are known of a node.

The expressions are those of compute(); native/binding/ort_shapes.h computes with unknown sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

from opmatrix.codegen.cpp import SizeCode, call, literal, quoted
from opmatrix.codegen.cpp_outputs import added, replaced
from opmatrix.codegen.cpp_variables import dtype_name
from opmatrix.declaration.declared_sizes import kernel_dims, kernel_names, last_inferred
from opmatrix.declaration.size_expressions import FURTHER
from opmatrix.declaration.torch_signature import is_required, onnx_name
from opmatrix.spec import Dims, FromKernel, OpSpec, Output, SameAs

UNKNOWN = "ort::Dim()"


def statements(spec: OpSpec) -> list[str]:
    """Return the statements of infer_shapes: they read what the rules of outputs use, and set each output's shape."""
    reads: dict[str, None] = {}  # in the order of their first use
    inputs = [i.name for i in spec.inputs]
    attributes = {a.name: a for a in spec.attributes}

    def shape(name: str) -> str:
        reads[f"const ort::Shape {name} = context.input({inputs.index(name)})"] = None
        return name

    def attribute(name: str) -> str:
        given = attributes[name]
        kind, getter = ("Numbers", "numbers") if given.kind == "ints" else ("Dim", "number")
        default = [] if given.default is None else [_literal(given.default)]
        arguments = ", ".join([quoted(onnx_name(given)), *default])
        reads[f"const ort::{kind} {name}_ = context.{getter}({arguments})"] = None
        return f"{name}_"

    code = SizeCode(spec=spec, shape=shape, attribute=attribute)
    found = [
        line
        for index, output in enumerate(spec.outputs[: last_inferred(spec) + 1])
        for line in _output(spec, output, index, code)
    ]
    return [*reads, *found]


def _literal(value: object) -> str:
    return f"{{{', '.join(map(literal, value))}}}" if isinstance(value, tuple | list) else literal(value)


def _output(spec: OpSpec, output: Output, index: int, code: SizeCode) -> Iterator[str]:
    found = f"{output.name}_sizes"
    match output.shape:
        case SameAs(input=name, replace=replace) if not replace:  # of a variadic input the first tensor's
            found = code.shape(name)
        case SameAs(input=str(name)) | FromKernel(input=str(name)) as rule:
            decided = dict.fromkeys(kernel_names(spec, rule), UNKNOWN)
            yield from replaced(rule, output.name, code, made="ort::Shape", of=code.shape(name), decided=decided)
        case Dims(dims=dims) as rule if FURTHER in dims:
            yield from added(rule, output.name, code, made="ort::Shape")
        case Dims(dims=dims):
            found = _listed(code(dim) for dim in dims)
        case FromKernel() as rule:
            found = _listed(UNKNOWN if dim is None else code(dim) for dim in kernel_dims(spec, rule))
    label = f"{spec.onnx.domain}::{spec.onnx.op_type}.{output.name}."
    arguments = [str(index), _element_type(spec, output.type), quoted(label), found]
    if isinstance(output.optional, str):
        arguments.append(code.attribute(output.optional))
    yield call("context.output", arguments)


def _element_type(spec: OpSpec, declared: str) -> str:
    """Return the type of an output's elements, or that of the first input that has it, required ones first."""
    if declared in spec.types:
        of_type = sorted((not is_required(part), n) for n, part in enumerate(spec.inputs) if part.type == declared)
        return f"context.type_of({of_type[0][1]})"
    return dtype_name(declared)


def _listed(sizes: Iterator[str]) -> str:
    return f"{{{', '.join(sizes)}}}"
