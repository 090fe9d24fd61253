"""Draft an operator from a torch schema, or report each part that cannot be declared. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from opmatrix.declaration import torch_schema_parser
from opmatrix.declaration.torch_schema_parser import Parameter, Schema, Value
from opmatrix.declaration.torch_signature import FIXED, is_composed, is_fixed, is_written, seeds, torch_schema
from opmatrix.declaration.validation.operator import INPUTS_OF_ONNX, OF_ORT, TAKEN
from opmatrix.declaration.variadic_outputs import variadic_output
from opmatrix.errors import UsageError
from opmatrix.scaffold import free_names
from opmatrix.scaffold.draft import (
    FLOATS,
    SUMMARY,
    Draft,
    finished,
    is_variable,
    op_type_of,
    shape_rule,
    unused,
)
from opmatrix.scaffold.free_names import NOTHING, Used
from opmatrix.scaffold.schema_arguments import (
    GENERATORS,
    OPTIONAL,
    TENSORS,
    is_constant,
    is_variadic,
    kind,
    may_count,
    only_written,
    refused,
)
from opmatrix.spec import Attribute, AttributeKind, Input, OnnxOp, OpSpec, Output, SameAs, TorchOp


def from_schema(text: str, *, domain: str, name: str = "", op_type: str = "") -> Draft:
    """Return the operator of a torch schema. Raises UsageError with column and reason of each undeclarable part."""
    schema = torch_schema_parser.parse(text)
    if mistakes := [*refused(schema)]:
        torch_schema_parser.refuse("the schema cannot be declared:", schema.text, mistakes)
    used = _names_in_code(schema)
    name = used.for_operator(name, schema.name)
    used = replace(used, words=used.words | {name})
    tensors = sum(a.type.name == "Tensor" for a in schema.arguments)
    taken = tensors < INPUTS_OF_ONNX.get(op_type_of(name), 0) or op_type_of(name) in OF_ORT
    onnx = OnnxOp(domain=domain, op_type=op_type or op_type_of(name) + "Op" * taken)
    spec = _spec(schema, name, onnx, used)
    if unpassable := [*_unpassable(schema, spec, used)]:
        torch_schema_parser.refuse("the schema cannot be declared:", schema.text, unpassable)
    fixed = spec.torch.fixed if spec.torch else {}
    constants = [a.name for a in schema.arguments if is_constant(a)]
    notes = [f"{', '.join(constants)}: None is the only legal value"] if constants else []
    if fixed:
        values = ", ".join(f"{name}={value}" for name, value in fixed.items())
        notes.append(f"fixed= of TorchOp has the only legal values, {values}: change them if yours are others")
    if drawn := {name: seed.name for name, seed in seeds(spec).items()}:
        given = ", ".join(f"{name} gives the attribute {seed}" for name, seed in drawn.items())
        notes.append(f"{given}, one number per call; None is torch's default generator")
    if named := [a.name for a in only_written(schema) if not a.keyword]:
        why = "written and not read, as the name says; if it is read, declare an input that an output writes"
        notes.append(f"{', '.join(named)}: {why}")
    if last := variadic_output(spec):
        notes.append(f"{last.name} has as many tensors as {last.variadic} says; change variadic= if another one does")
    return finished(Draft(spec=spec, notes=tuple(notes), origin=f"declared from {schema.text}"))


def _spec(schema: Schema, name: str, onnx: OnnxOp, used: Used) -> OpSpec:
    """Return the declaration of a schema without tolerances; no part has a name in `used`."""
    variable = unused("T", [p.name for p in (*schema.arguments, *schema.results)])
    inputs, attributes, outputs = parts(schema, variable, kind, used)
    spec = OpSpec(
        name=name,
        summary=SUMMARY,
        torch=TorchOp(name=schema.qualified),
        onnx=onnx,
        types={variable: FLOATS},
        inputs=inputs,
        attributes=attributes,
        outputs=outputs,
        tolerances={},
    )
    return spec if _is_derived(schema, spec, used) else replace(spec, torch=_written(schema))


def _written(schema: Schema) -> TorchOp:
    fixed = {a.name: _first_legal(a) for a in schema.arguments if is_fixed(a)}
    return TorchOp(name=schema.qualified, schema=schema.text, fixed=fixed)


def _names_in_code(schema: Schema) -> Used:
    """Return the names that the generated code of an operator uses, with its schema written and derived."""
    text, names = free_names.marked_schema(schema)
    marked = torch_schema_parser.parse(text)
    spec = free_names.with_marks(_spec(marked, free_names.OPERATOR, OnnxOp(domain="d", op_type="O"), NOTHING))
    return free_names.names_in_code([spec, replace(spec, torch=_written(marked))], names)


def _unpassable(schema: Schema, spec: OpSpec, used: Used) -> Iterator[tuple[int, str]]:
    """Yield the arguments whose own names the generated Python needs, and uses for something else."""
    for a in schema.arguments:
        needed = a.keyword or is_composed(spec) or a in only_written(schema)
        if needed and a.name in used.python and a.name not in free_names.UNMARKED:
            yield a.at, f"{a.name!r} names something else in generated code, allowed: another name"


def _first_legal(argument: Parameter) -> str | None:
    return None if argument.type.name.endswith("?") else FIXED[argument.type.name][0]


def _is_derived(schema: Schema, spec: OpSpec, used: Used) -> bool:
    """Return whether the torch schema that follows from a declaration is this one: its arguments are equal."""
    try:
        derived = torch_schema_parser.parse(torch_schema(spec))
    except UsageError:  # such as a default ahead of an argument without one
        return False
    one, other = ([(a.type.name, a.name, a.default, a.has_default, a.keyword) for a in s.arguments]
                  for s in (schema, derived))  # fmt: skip
    written = any(is_written(a) for a in schema.arguments)
    return (
        one == other and not schema.overload and not written and all(_is_usable(a.name, used) for a in schema.arguments)
    )


def _is_usable(name: str, used: Used) -> bool:
    """Return whether generated code, which uses the names `used`, can have that of an argument."""
    return is_variable(name) and name not in TAKEN and name not in used


def parts(
    schema: Schema,
    variable: str,
    kind_of: Callable[[Parameter], AttributeKind | None],
    used: Used = NOTHING,
) -> tuple[tuple[Input, ...], tuple[Attribute, ...], tuple[Output, ...]]:
    """Return the inputs, a variadic one last, the attributes and the outputs; tensors are of type `variable`.

    `kind_of` returns None for a non-tensor argument that is left out. An unnamed result is named y. No part has a name
    in `used`.
    """
    arguments = [a.name for a in schema.arguments]
    free = {a: a if _is_usable(a, used) else used.free(a, arguments) for a in arguments}
    out = only_written(schema)
    given = [a for a in schema.arguments if a.type.name in TENSORS and a not in out]
    tensors = sorted(given, key=lambda a: a.type.name == "Tensor[]")
    inputs = tuple(
        Input(
            name=free[a.name],
            type=variable,
            torch_name=None if free[a.name] == a.name else a.name,
            optional=a.type.name == "Tensor?",
            variadic=a.type.name == "Tensor[]",
            doc="TODO",
        )
        for a in tensors
    )
    numbers = [(a, kind_of(a)) for a in schema.arguments if a.type.name not in TENSORS]
    attributes = tuple(_attribute(a, kind, free) for a, kind in numbers if kind)
    in_place = [i for i, a in zip(inputs, tensors, strict=True) if is_written(a)]
    results = [r for r in schema.results if not is_written(r)]
    given_names = [*(i.name for i in inputs), *(a.name for a in attributes), *(a.name for a in out)]
    # torch names the results of a schema that it infers from a function as it does the arguments: _0, _1, ...
    named_results = ["" if r.name in given_names or not _is_usable(r.name, used) else r.name for r in results]
    taken = [*given_names, *named_results, *used.words, *used.made, *TAKEN]
    count = len(in_place) + len(out) + len(results)
    outputs = [Output(name=a.name, type=variable, shape=shape_rule(inputs, variable), doc="TODO") for a in out]
    for writes, named in [*((i.name, "") for i in in_place), *((None, r) for r in named_results)]:
        name = named or unused(f"new_{writes}" if writes else "y" if count == 1 else f"y{len(outputs)}", taken)
        taken.append(name)
        shape = SameAs(input=writes) if writes else shape_rule(inputs, variable)
        outputs.append(Output(name=name, type=variable, shape=shape, writes=writes, doc="TODO"))
    if is_variadic(schema):
        counted = _counter(inputs, attributes)
        own = SameAs(input=counted.name) if isinstance(counted, Input) else outputs[-1].shape
        outputs[-1] = replace(outputs[-1], variadic=counted.name if counted else None, shape=own)
        attributes = tuple(replace(a, minimum=1) if a is counted and a.kind == "int" else a for a in attributes)
    return inputs, attributes, tuple(outputs)


# Names of an int that likely says how many outputs there are.
_COUNTS = re.compile(r"count|chunks|num|sections|splits|parts|(?:^|_)n(?:_|$)")


def _counter(inputs: Sequence[Input], attributes: Sequence[Attribute]) -> Input | Attribute | None:
    """Return what likely says how many tensors a variadic result has."""
    counted = [a for a in attributes if a.kind in ("int", "ints") and not a.optional and may_count(a.default)]
    likely = sorted(counted, key=lambda a: (_COUNTS.search(a.name) is None, a.kind == "int"))
    found: list[Input | Attribute] = [*(i for i in inputs if i.variadic), *likely]
    return next(iter(found), None)


def _as_float(value: Value) -> Value:
    """Return an integer as a float, and any other value as it is: the validation reports it."""
    try:
        return float(value) if isinstance(value, int) else value
    except OverflowError:
        return value


def _attribute(argument: Parameter, kind: AttributeKind, free: Mapping[str, str]) -> Attribute:
    """Return the attribute for a non-tensor argument; an integer default of a float becomes a float."""
    if argument.type.name in GENERATORS:  # without a default, so that None is torch's default generator
        return Attribute(
            name=unused("seed", {*free, *free.values()} - {argument.name}),
            kind="int",
            minimum=0,
            torch_name=argument.name,
            doc="TODO",
        )
    default = argument.default
    if kind == "float":
        default = _as_float(default)
    if kind == "floats" and isinstance(default, tuple):
        default = tuple(map(_as_float, default))
    name, optional = free[argument.name], argument.type.name in OPTIONAL
    owned = None if name == argument.name else argument.name  # torch and the node have the schema's name
    default = None if optional else default  # of the node; torch may have another one
    return Attribute(
        name=name,
        kind=kind,
        default=default,  # type: ignore[arg-type]  # of its kind
        optional=optional,
        torch_name=owned,
        onnx_name=owned,
        doc="TODO",
    )
