"""Render the C++ side of an operator: its kernel's declarations and instances, and both bindings. Pure.

The text is laid out as clang-format would (a test holds this), so that a person can debug in it, and no formatter has
to be installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2

from pipeline.schema import dtype_tuples, torch_name, torch_schema
from pipeline.spec import Attribute, DType, Input, OpSpec, Output, SameAs

WIDTH = 120

# float16 and bfloat16 have no type of the language before C++23.
CPP_TYPES: Mapping[DType, str] = {
    "float32": "float", "float64": "double", "bool": "bool",
    "int8": "std::int8_t", "int16": "std::int16_t", "int32": "std::int32_t", "int64": "std::int64_t",
    "uint8": "std::uint8_t", "uint16": "std::uint16_t", "uint32": "std::uint32_t", "uint64": "std::uint64_t",
}  # fmt: skip


def render(spec: OpSpec) -> dict[str, str]:
    """Return the text of every generated C++ file, by name. `spec` is one that `pipeline.load` accepts."""
    variables = _variables(spec)
    templates = {
        f"{spec.name}.h": "kernel.h.j2",
        "kernel.cc": "kernel.cc.j2",
        "checks.h": "checks.h.j2",
        "torch.cc": "torch.cc.j2",
        "ort.cc": "ort.cc.j2",
    }
    files = {name: _environment().get_template(template).render(variables) for name, template in templates.items()}
    return files | {"ort_library.cc": ort_library([spec.name])}


def ort_library(names: Sequence[str]) -> str:
    """Return the file that makes one ONNX Runtime library of the operators `names`."""
    return _environment().get_template("ort_library.cc.j2").render(names=names)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pipeline.glue"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(call=call, constant=constant, quoted=quoted)
    return environment


def call(head: str, arguments: Sequence[str], *, indent: int = 0, tail: str = "") -> str:
    """Return ``head(a, b)`` followed by `tail`, filled to the width and aligned behind the bracket.

    `indent` is the column of `head`; one more is kept free for a semicolon.
    """
    margin = indent + len(head) + 1
    lines = [""]
    for position, argument in enumerate(arguments):
        last = position == len(arguments) - 1
        piece = argument + (")" if last else ",")
        room = WIDTH - margin - len(lines[-1]) - (1 if lines[-1] else 0) - (max(1, len(tail)) if last else 0)
        if lines[-1] and len(piece) > room:
            lines.append(piece)
        else:
            lines[-1] += (" " if lines[-1] else "") + piece
    return f"{head}(" + f"\n{' ' * margin}".join(lines) + (")" if not arguments else "") + tail


def constant(name: str, value: str) -> str:
    """Return ``name = value``, broken behind the sign where it is too long for one line."""
    line = f"{name} = {value}"
    return line if len(line) < WIDTH else f"{name} =\n    {value}"


def quoted(text: str) -> str:
    """Return `text` as a C++ string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True, kw_only=True)
class _Kernel:
    parameters: list[str]


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """One binding of the type variables: how templates take it, and what the dtypes of the inputs then are."""

    arguments: str
    condition: str


@dataclass(frozen=True, kw_only=True)
class _Input:
    name: str
    type: str
    dtype: str
    dims: bool  # whether its shape is checked
    leader: str | None  # the first input with the same type variable
    allowed: str


@dataclass(frozen=True, kw_only=True)
class _Output:
    name: str
    type: str
    dtype: str
    like: str
    index: int


@dataclass(frozen=True, kw_only=True)
class _Attribute:
    name: str
    torch_name: str
    rounded: str  # the torch argument as float32
    default: str | None
    torch_check: list[str] | None
    ort_check: list[str] | None


def _variables(spec: OpSpec) -> dict[str, Any]:
    if spec.torch is None:
        raise ValueError(f"{spec.name} is declared without a torch operator")
    namespace, _, function = spec.torch.name.partition("::")
    inputs = [_input(spec, i) for i in spec.inputs]
    outputs = [_output(spec, o) for o in spec.outputs]
    attributes = [_attribute(spec, a) for a in spec.attributes]
    return {
        "spec": spec,
        "origin": f"Generated from ops/{spec.name}/spec.py, so do not edit.",
        "namespace": namespace,
        "function": function,
        "schema": torch_schema(spec).removeprefix(f"{namespace}::"),
        "typenames": ", ".join(f"typename {variable}" for variable in spec.types),
        "names": [*(i.name for i in inputs), *(a.name for a in attributes), *(o.name for o in outputs)],
        "inputs": inputs,
        "outputs": outputs,
        "attributes": attributes,
        "kernels": [_kernel(spec, types) for types in dtype_tuples(spec)],
        "choices": [_choice(spec, types) for types in dtype_tuples(spec)],
        "shape_parameters": [f"Sizes {i.name}" for i in spec.inputs if i.dims is not None],
        "shape_checks": list(_shape_checks(spec)),
        "torch": _torch_lists(inputs, attributes, outputs),
        "ort": {
            "compute_arguments": [f"{i.name}.view<{i.type}>()" for i in inputs]
            + [f"{a.name}_" for a in attributes]
            + [o.name for o in outputs]
        },
    }


def _torch_lists(
    inputs: Sequence[_Input], attributes: Sequence[_Attribute], outputs: Sequence[_Output]
) -> dict[str, list[str]]:
    return {
        "sizes": [f"{i.name}.sizes()" for i in inputs if i.dims],
        "run_parameters": [f"torch::Input& {i.name}" for i in inputs]
        + [f"float {a.name}" for a in attributes]
        + ["StableIValue* results"],
        "run_arguments": [i.name for i in inputs] + [a.rounded for a in attributes] + ["stack"],
        "compute_arguments": [f"{i.name}.view<{i.type}>()" for i in inputs]
        + [a.name for a in attributes]
        + [f"TensorView<{o.type}>{{{o.name}.data<{o.type}>(), {o.like}.sizes()}}" for o in outputs],
    }


def _cpp(spec: OpSpec, declared: str, types: Mapping[str, DType] | None = None) -> str:
    """Return the C++ type of a declared type: of a type variable its name, or its type under a binding."""
    if declared in spec.types:
        return CPP_TYPES[types[declared]] if types else declared
    return next(cpp for dtype, cpp in CPP_TYPES.items() if dtype == declared)


def _dtype(name: str) -> str:
    return f"DType::{'boolean' if name == 'bool' else name}"


def _input(spec: OpSpec, given: Input) -> _Input:
    same = [i.name for i in spec.inputs if i.type == given.type and given.type in spec.types]
    allowed: Sequence[str] = spec.types.get(given.type) or (given.type,)
    return _Input(
        name=given.name,
        type=_cpp(spec, given.type),
        dtype=f"dtype_of<{_cpp(spec, given.type)}>",
        dims=given.dims is not None,
        leader=same[0] if same and same[0] != given.name else None,
        allowed="{" + ", ".join(map(_dtype, allowed)) + "}",
    )


def _output(spec: OpSpec, given: Output) -> _Output:
    if not isinstance(given.shape, SameAs):
        raise ValueError(f"{spec.name}: output {given.name!r} has a shape rule that is not supported yet")
    cpp = _cpp(spec, given.type)
    index = [i.name for i in spec.inputs].index(given.shape.input)
    return _Output(name=given.name, type=cpp, dtype=f"dtype_of<{cpp}>", like=given.shape.input, index=index)


def _attribute(spec: OpSpec, given: Attribute) -> _Attribute:
    if given.kind != "float":
        raise ValueError(f"{spec.name}: attribute {given.name!r} is of a kind that is not supported yet")
    shown = torch_name(given)
    return _Attribute(
        name=given.name,
        torch_name=shown,
        rounded=f"{given.name}_float" if shown == given.name else given.name,
        default=None if given.default is None else _literal(given.default, "f"),
        torch_check=_limits(spec, given, variable=shown, shown=shown, suffix=""),
        ort_check=_limits(spec, given, variable=f"{given.name}_", shown=given.name, suffix="f"),
    )


def _literal(value: Any, suffix: str) -> str:
    """Return a number as C++ has it: 1e-05f, 0.0."""
    return f"{float(value)!r}{suffix}"


def _limits(spec: OpSpec, given: Attribute, *, variable: str, shown: str, suffix: str) -> list[str] | None:
    """Return the arguments of the check of an attribute's value; a NaN compares false, so it never passes."""
    bounds = [(">=", "at least", given.minimum), ("<=", "at most", given.maximum)]
    found = [(sign, words, bound) for sign, words, bound in bounds if bound is not None]
    conditions = [f"{variable} {sign} {_literal(bound, suffix)}" for sign, _, bound in found]
    words = [f"{words} {bound:g}" for _, words, bound in found]
    if given.allowed is not None:
        choice = " || ".join(f"{variable} == {_literal(value, suffix)}" for value in given.allowed)
        conditions.append(f"({choice})" if found else choice)
        words.append("one of " + ", ".join(map(str, given.allowed)))
    if not conditions:
        return None
    text = f"{spec.name}: {shown} must be {' and '.join(words)}, got "
    return [" && ".join(conditions), quoted(text), variable]


def _shape_checks(spec: OpSpec) -> Iterator[list[str]]:
    """Yield the arguments of the checks; a name is bound where it first stands, and compared from there on."""
    bound: dict[str, tuple[str, str]] = {}  # name of a size: the expression that has it, and its input
    for given in spec.inputs:
        if given.dims is None:
            continue
        fixed = [d for d in given.dims if d != "..."]
        conditions = [f"{given.name}.rank {'>=' if '...' in given.dims else '=='} {len(fixed)}"]
        known: dict[str, tuple[str, str]] = {}
        for axis, size in enumerate(fixed):
            here = f"{given.name}[{axis}]"
            if isinstance(size, int):
                conditions.append(f"{here} == {size}")
            elif size in bound:
                conditions.append(f"{here} == {bound[size][0]}")
                known[size] = bound[size]
            else:
                bound[size] = (here, given.name)
        whole = " && ".join(conditions)
        # A line is never broken within a condition: where it would be too long, each part is a check of its own.
        for condition in [whole] if len(whole) < WIDTH - 20 else conditions:
            yield [condition, *_shape_message(spec, given, known)]


def _shape_message(spec: OpSpec, given: Input, known: Mapping[str, tuple[str, str]]) -> list[str]:
    shape = ", ".join(map(str, given.dims or ())) + ("," if len(given.dims or ()) == 1 else "")
    text = f"{spec.name}: {given.name} must have shape ({shape})"
    parts: list[str] = []
    separator = " with "
    for name, (expression, owner) in known.items():
        if owner == given.name:
            continue  # its own sizes are shown anyway
        parts += [quoted(f"{text}{separator}{name} = "), expression]
        text, separator = f" as in {owner}", " and "
    return [*parts, quoted(f"{text}, got "), given.name]


def _kernel(spec: OpSpec, types: Mapping[str, DType]) -> _Kernel:
    inputs = [f"TensorView<const {_cpp(spec, i.type, types)}> {i.name}" for i in spec.inputs]
    attributes = [f"float {a.name}" for a in spec.attributes]
    outputs = [f"TensorView<{_cpp(spec, o.type, types)}> {o.name}" for o in spec.outputs]
    return _Kernel(parameters=[*inputs, *attributes, *outputs])


def _choice(spec: OpSpec, types: Mapping[str, DType]) -> _Choice:
    leaders = {variable: next(i.name for i in spec.inputs if i.type == variable) for variable in types}
    return _Choice(
        arguments="<" + ", ".join(CPP_TYPES[dtype] for dtype in types.values()) + ">" if types else "",
        condition=" && ".join(f"{leaders[v]}.dtype() == {_dtype(dtype)}" for v, dtype in types.items()),
    )
