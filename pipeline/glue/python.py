"""Render the Python side of an operator: its ONNX schema, its fake kernel and what each exporter needs. Pure.

The generated files import their framework and nothing of opmatrix, so that a person can load one by hand and step
through it. They register nothing on import: the stage that wants a registration calls the function that makes it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2

from pipeline.glue import names, onnx_schema
from pipeline.schema import Argument, torch_arguments, torch_schema
from pipeline.spec import Attribute, AttributeKind, OpSpec, Output, SameAs

WIDTH = 120

# The letter that an attribute ends with in `g.op(...)`.
_LETTERS: Mapping[AttributeKind, str] = {
    "float": "f", "int": "i", "bool": "i", "string": "s", "floats": "f", "ints": "i", "bools": "i", "strings": "s",
}  # fmt: skip


def render(spec: OpSpec) -> dict[str, str]:
    """Return the text of every file of `names.PYTHON`, by name. `spec` is one that `pipeline.load` accepts."""
    variables = onnx_schema.variables(spec) | (_variables(spec) if spec.torch else {})
    return {name: _environment().get_template(f"{name}.j2").render(variables) for name in names.python(spec)}


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pipeline.glue"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["literal"] = _literal
    environment.globals["bracket"] = _bracket
    return environment


def _variables(spec: OpSpec) -> dict[str, Any]:
    if spec.torch is None:
        raise ValueError(f"{spec.name} is declared without a torch operator")
    namespace, _, function = spec.torch.name.partition("::")
    arguments = torch_arguments(spec)
    attributes = [(a, a.source) for a in arguments if isinstance(a.source, Attribute)]
    return {
        "spec": spec,
        "namespace": namespace,
        "function": function,
        "torch_schema": torch_schema(spec).removeprefix(f"{namespace}::"),
        "names": [a.name for a in arguments],
        "tensors": [f"*{i.name}" if i.variadic else i.name for i in spec.inputs],
        "typed": [_typed(a, tensor="torch.Tensor") for a in arguments],
        "passed": [(s.name, _LETTERS[s.kind], a.name) for a, s in attributes if not s.torch_only],
        "results": [_result(spec, o) for o in spec.outputs],
        "faults": [*_dtype_faults(spec), *_shape_faults(spec)],
    }


@dataclass(frozen=True, kw_only=True)
class Result:
    """One output in generated Python. The dtype is an expression, or None for the dtype of `like`."""

    name: str
    like: str  # the input whose shape it has
    dtype: str | None


def _result(spec: OpSpec, output: Output) -> Result:
    if not isinstance(output.shape, SameAs):
        raise ValueError(f"{spec.name}: output {output.name!r} has a shape rule that is not supported yet")
    like = next(i for i in spec.inputs if i.name == output.shape.input)
    dtype = None if like.type == output.type else _dtype(spec, output.type)
    return Result(name=output.name, like=like.name, dtype=dtype)


def _dtype(spec: OpSpec, declared: str) -> str:
    """Return a declared type as torch has it: a piece of generated Python."""
    of_type = (part.name for part in spec.inputs if declared in spec.types and part.type == declared)
    return next((f"{name}.dtype" for name in of_type), f"torch.{declared}")


def _dtype_faults(spec: OpSpec) -> Iterator[tuple[str, str]]:
    """Yield, per input, the condition of a wrong dtype and its message: two pieces of generated Python."""
    leaders: dict[str, str] = {}
    for name, declared in ((i.name, i.type) for i in spec.inputs):
        if leader := leaders.get(declared):
            yield (
                f"{name}.dtype != {leader}.dtype",
                f"{name} must be {{{leader}.dtype}} as {leader} is, got {{{name}.dtype}}",
            )
            continue
        allowed = [f"torch.{dtype}" for dtype in spec.types.get(declared, (declared,))]
        condition = (
            f"{name}.dtype != {allowed[0]}" if len(allowed) == 1 else f"{name}.dtype not in ({', '.join(allowed)})"
        )
        yield condition, f"{name} must be {' or '.join(allowed)}, got {{{name}.dtype}}"
        if declared in spec.types:
            leaders[declared] = name


def _shape_faults(spec: OpSpec) -> Iterator[tuple[str, str]]:
    """Yield, per input, the condition of a wrong shape and its message, worded as the compiled binding has it."""
    bound: dict[str, tuple[str, str]] = {}  # name of a size: the expression that has it, and its input
    for name, dims in ((i.name, i.dims) for i in spec.inputs if i.dims is not None):
        fixed = [dim for dim in dims if dim != "..."]
        conditions = [f"{name}.dim() {'!=' if len(fixed) == len(dims) else '<'} {len(fixed)}"]
        origins = []
        for axis, dim in enumerate(fixed):
            size = f"{name}.shape[{axis}]"
            leader, owner = (str(dim), name) if isinstance(dim, int) else bound.setdefault(dim, (size, name))
            conditions += [f"{size} != {leader}"] if leader != size else []
            origins += [f"{dim} = {{{leader}}} as in {owner}"] if owner != name else []
        shape = f"({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''})"
        origin = " with " + " and ".join(origins) if origins else ""
        yield " or ".join(conditions), f"{name} must have shape {shape}{origin}, got {{tuple({name}.shape)}}"


def _typed(argument: Argument, *, tensor: str | None) -> str:
    """Return a parameter as a Python function declares it; None leaves tensors without annotation."""
    annotation = tensor if argument.type == "Tensor" else argument.type
    default = "" if argument.default is None else f" = {_literal(argument.default)}"
    return f"{argument.name}{f': {annotation}' if annotation else ''}{default}"


def _literal(value: object) -> str:
    """Return a literal as ruff spells it: with double quotes unless that takes more backslashes."""
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and text[0] == "'" and '"' not in value else text


def _bracket(indent: int, opening: str, parts: Iterable[str], closing: str) -> str:
    """Return ``opening(parts)closing`` as ruff lays it out: on one line where it fits, else one part per line."""
    parts = list(parts)
    line = f"{opening}{', '.join(parts)}{closing}"
    if "\n" not in line and indent + len(line) <= WIDTH:
        return line
    body = "".join(f"{part},\n" for part in parts)
    return textwrap.indent(f"{opening}\n{textwrap.indent(body, '    ')}{closing}", " " * indent).lstrip()
