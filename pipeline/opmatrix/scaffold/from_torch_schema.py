"""Draft an operator from a torch schema, or report each part that cannot be declared. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from opmatrix.basics.errors import UsageError, did_you_mean
from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.declaration.validation.fields import duplicates
from opmatrix.declaration.validation.operator import INPUTS_OF_ONNX, OF_ORT, TAKEN
from opmatrix.scaffold import free_names
from opmatrix.scaffold.draft import SUMMARY, USUAL_DTYPES, Draft, finished, is_variable, op_type_of, shape_rule, unused
from opmatrix.scaffold.free_names import NOTHING, Used
from opmatrix.signature import parser
from opmatrix.signature.parser import Parameter, Schema, Type, Value
from opmatrix.signature.signature import FIXED, is_composed, is_fixed, is_written, seeds, torch_schema
from opmatrix.sizes.variadic import variadic_output
from opmatrix.spec import Attribute, AttributeKind, Input, OnnxOp, OpSpec, Output, SameAs, TorchOp

TENSORS = ("Tensor", "Tensor?", "Tensor[]")
KINDS: Mapping[str, AttributeKind] = {
    "float": "float", "int": "int", "bool": "bool", "str": "string", "Scalar": "float",
    "float[]": "floats", "int[]": "ints", "str[]": "strings",
}  # fmt: skip
# The same with None as a further value.
OPTIONAL: Mapping[str, AttributeKind] = {f"{name}?": kind for name, kind in KINDS.items()} | {
    "SymInt?": "int", "SymInt[]?": "ints",
}  # fmt: skip
ALLOWED = ", ".join((*TENSORS, *KINDS))

_NO_KIND = "of no fixed kind, and an attribute of ONNX has one: write"
_SIZE = (
    "a size that torch may trace as a symbol, and an attribute of ONNX is a constant: write int, or make it a Tensor"
)
_NO_ATTRIBUTE = "nothing that a node of ONNX can hold: leave it out"
_REASONS: Mapping[str, str] = {
    "Scalar": f"a list of numbers {_NO_KIND} float[] or int[]",
    "number": f"a number {_NO_KIND} Scalar, float or int",
    "SymInt": _SIZE, "SymBool": _SIZE.replace("int,", "bool,"),
    "complex": "of a kind that neither LibTorch's stable ABI nor ONNX has: write float[]",
    "Generator": "no state that a model has, but one number of it can be a seed: write Generator?",
} | dict.fromkeys(
    ("ScalarType", "Device", "Layout", "MemoryFormat", "Dimname", "Storage", "Stream", "QScheme", "DeviceIndex"),
    _NO_ATTRIBUTE,
)  # fmt: skip
# What torch's functions take about memory.
_MEMORY = ("ScalarType?", "Layout?", "Device?", "MemoryFormat?")
# What gives the value of an int attribute, the seed.
GENERATORS = ("Generator", "Generator?")
# Names of arguments that an operator writes and does not read.
_OUT = re.compile(r"(out|outs|output|outputs|result|results|dst)\d*|out_\w+|\w+_out")
# Other spellings of a type.
_SPELLED: Mapping[str, str] = {
    "double": "float", "float32": "float", "float64": "float", "long": "int", "int64": "int", "int64_t": "int",
    "string": "str", "boolean": "bool", "list": "int[]", "List": "int[]", "Optional": "Tensor?", "ndarray": "Tensor",
}  # fmt: skip


def only_written(schema: Schema) -> list[Parameter]:
    """Return the arguments that the operator writes and does not read, ``out=``: those with a star before them, and, if
    another tensor remains as an input, those with such a name."""
    written = [a for a in schema.arguments if is_written(a)]
    named = [a for a in written if a.keyword or _OUT.fullmatch(a.name)]
    others = any(a.type.name == "Tensor" and a not in named for a in schema.arguments)
    return named if others else [a for a in written if a.keyword]


def kind(argument: Parameter) -> AttributeKind | None:
    """Return the kind of a non-tensor argument; None for one that has one legal value."""
    if is_constant(argument) or is_fixed(argument):
        return None
    if argument.type.name in GENERATORS:
        return "int"
    return OPTIONAL.get(argument.type.name) or KINDS[_without_length(argument.type.name)]


def _without_length(kind: str) -> str:
    """Return ``int[]`` for ``int[2]``, ``SymInt[]`` and ``SymInt[2]``, and ``int`` for ``SymInt``."""
    return re.sub(r"^(?:int|SymInt)(\[\d*\])?$", lambda match: "int[]" if match[1] else "int", kind)


def is_constant(argument: Parameter) -> bool:
    """Return whether an argument is about memory, which no node has, and may be None."""
    optional = argument.type.name in _MEMORY or (argument.type.name, argument.name) == ("bool?", "pin_memory")
    return optional and argument.has_default and argument.default is None


def is_variadic(schema: Schema) -> bool:
    """Return whether the last result is any number of tensors."""
    return bool(schema.results) and schema.results[-1].type.name == "Tensor[]"


def refused(schema: Schema) -> Iterator[tuple[int, str]]:
    """Yield the position and the reason of each part that cannot be declared."""
    if not schema.namespace:
        yield 0, f"an operator of torch has a namespace: write 'my::{schema.name}'"
    if schema.namespace in ("aten", "prim", "prims"):
        yield 0, f"{schema.namespace} is torch's own: choose one of yours, or give --override {schema.qualified}"
    at = 0
    for part, name in (("namespace", schema.namespace), ("name", schema.name), ("overload", schema.overload)):
        at = schema.text.index(name, at)
        if why := parser.why_not_in_ops(part, name):
            yield at, why
        at += len(name)
    if schema.more:
        yield schema.text.index("..."), "any number of arguments of any kind; name each: an operator has a fixed schema"
    for argument in schema.arguments:
        yield from _refused_argument(argument)
    for twice in duplicates([a.name for a in schema.arguments]):
        yield [a.at for a in schema.arguments if a.name == twice][1], f"{twice!r} a second time; rename one"
    variadic = [a for a in schema.arguments if a.type.name == "Tensor[]"]
    for argument in variadic[1:]:
        yield argument.type.at, f"{argument.name!r} follows {variadic[0].name!r}, of which there are any number too: " \
            "a node of ONNX has one variadic input"  # fmt: skip
    sure = ("Tensor", "Tensor[]") if is_variadic(schema) else ("Tensor",)
    if not any(a.type.name in sure and a not in only_written(schema) for a in schema.arguments):
        yield schema.text.index("("), "no argument is a Tensor; at least one is needed, like which outputs are created"
    yield from refused_results(schema, variadic=True)


def _refused_argument(argument: Parameter) -> Iterator[tuple[int, str]]:
    """Yield why an argument can be neither an input nor an attribute."""
    found, at = argument.type, argument.type.at
    if found.alias and not is_written(argument):
        yield at, parser.aliased(found)
    elif found.alias and found.name != "Tensor":
        yield at, parser.written_type(found)
    elif found.name in TENSORS:
        if argument.has_default and argument.default is not None:
            yield argument.at, f"{argument.name!r} has a default, and a tensor can only have the default None"
    elif found.name in GENERATORS:
        if argument.default is not None:
            yield argument.at, f"{argument.name!r} has a default, and a generator can only have the default None"
    elif is_constant(argument) or is_fixed(argument):
        return
    elif found.name.removesuffix("?") in FIXED:
        allowed = "no default, or None" if found.name.endswith("?") else "no default"
        yield argument.at, f"{argument.name!r} has a default, allowed: {allowed}; fixed= of TorchOp then has its one " \
            "legal value"  # fmt: skip
    elif found.name in OPTIONAL:
        yield from _refused_default(argument)
    elif _without_length(found.name) not in KINDS:
        yield at, why_no_type(found)
    elif found.name == "str[]" and argument.has_default:
        yield argument.at, f"{argument.name!r} has a default, and torch takes none of str[]: write str[], or str[]?"
    elif argument.has_default and argument.default is None:
        yield argument.at, f"{argument.name!r} cannot be None: it is {found.name}"
    else:
        yield from _refused_default(argument)


def _refused_default(argument: Parameter) -> Iterator[tuple[int, str]]:
    found, value = kind(argument), argument.default
    given = found is not None and value is not None
    if given and (why := value_mistake(Attribute(name=argument.name, kind=found), value)):  # type: ignore[arg-type]  # judged there
        yield argument.at, f"the default of {argument.name!r}: {why}"
    elif isinstance(value, str) and not value.isprintable():
        yield argument.at, f"the default of {argument.name!r}: found {value!r}, allowed: printable characters"


def why_no_type(type_: Type) -> str:
    """Return why an argument of this type cannot be declared."""
    name, element = type_.name, type_.element
    if (sized := re.fullmatch(r"(\w+\??)\[\d+\]", name)) and f"{sized[1]}[]" in (*TENSORS, *KINDS):
        return (
            f"{name} has a fixed length, which a declaration cannot say: write {sized[1]}[], and let the kernel check"
        )
    if name == "Tensor?[]":
        return "Tensor?[] is any number of tensors, any of them absent, and in ONNX none may be: write Tensor[]"
    if name == "Tensor[]?":
        return "Tensor[]? may be absent, and may be empty as well: write Tensor[], of which none may be given"
    if name in OPTIONAL:
        return f"{name} may be None, and is not left out, because it has no default None"
    if name.startswith(("(", "Tuple(")):
        return f"{name} is a tuple, and an attribute of ONNX is a number or a list: write int[], or an argument each"
    if name.startswith("bool["):
        return f"{name} is a list that torch's legacy exporter cannot trace: write int[], of 0 and 1"
    if element in _REASONS:
        return f"{name} is {_REASONS[element]}"
    if spelled := _SPELLED.get(element):
        return f"{name} is not a type of a torch schema; did you mean {spelled!r}?"
    return f"{name} is not a type that can be declared, allowed: {ALLOWED}{did_you_mean(name, (*TENSORS, *KINDS))}"


def may_count(default: Value) -> bool:
    """Return whether an argument with this default, or with None, may give the number of outputs: that is 1 or more."""
    return default != () and not (isinstance(default, int) and default < 1)


def refused_results(schema: Schema, *, variadic: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the position and the reason of each result that cannot be an output; `variadic`: the last may be a list."""
    if schema.more_results:
        yield schema.results_at, "any number of results: an exporter must know how many; name each"
    elif not schema.results and not any(map(is_written, schema.arguments)):
        yield schema.results_at, "no result: an operator of ONNX has at least one output; if the operator writes an " \
            "argument, mark it: Tensor(a!)"  # fmt: skip
    written = [a.type.alias for a in schema.arguments]
    kinds = {_without_length(a.type.name) for a in schema.arguments if may_count(a.default)}
    for result in schema.results:
        found = result.type
        if variadic and result is schema.results[-1] and found.name == "Tensor[]" and not found.alias:
            if not kinds & {"Tensor[]", "int", "int[]"}:
                yield found.at, "Tensor[] is any number of outputs, and no argument says how many: Tensor[], int, " \
                    "int[], each without default or with one of 1 output or more"  # fmt: skip
            elif any(is_written(a) for a in schema.arguments):
                yield found.at, "Tensor[] together with an argument that is written, allowed: Tensor"
            continue
        if found.alias and "!" not in found.alias:
            yield found.at, parser.aliased(found)
        elif found.alias and found.alias not in written:
            yield found.at, parser.no_argument(found, schema)
        elif found.name.startswith("Tensor["):
            allowed = "name each" if not variadic else "name each; Tensor[] is allowed as the last result"
            yield found.at, f"{found.name} is any number of outputs: an exporter must know how many; {allowed}"
        elif found.name == "Tensor?":
            yield found.at, parser.EMPTY_RESULT
        elif found.name != "Tensor":
            near = did_you_mean(found.name, ["Tensor"])
            yield found.at, f"{found.name} is not an output of an operator of ONNX, allowed: Tensor{near}"


def from_schema(text: str, *, domain: str, name: str = "", op_type: str = "") -> Draft:
    """Return the operator of a torch schema. Raises UsageError with column and reason of each undeclarable part."""
    schema = parser.parse(text)
    if mistakes := [*refused(schema)]:
        parser.refuse("the schema cannot be declared:", schema.text, mistakes)
    used = _names_in_code(schema)
    name = used.for_operator(name, schema.name)
    used = replace(used, words=used.words | {name})
    tensors = sum(a.type.name == "Tensor" for a in schema.arguments)
    taken = tensors < INPUTS_OF_ONNX.get(op_type_of(name), 0) or op_type_of(name) in OF_ORT
    onnx = OnnxOp(domain=domain, op_type=op_type or op_type_of(name) + "Op" * taken)
    spec = _spec(schema, name, onnx, used)
    if unpassable := [*_unpassable(schema, spec, used)]:
        parser.refuse("the schema cannot be declared:", schema.text, unpassable)
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
        types={variable: USUAL_DTYPES},
        inputs=inputs,
        attributes=attributes,
        outputs=outputs,
        tolerances={},
    )
    return spec if _is_derived(schema, spec, used) else replace(spec, torch=_written(schema))


def _written(schema: Schema) -> TorchOp:
    kinds = {a.name: a.type.name for a in schema.arguments if is_fixed(a)}
    fixed = {name: None if kind.endswith("?") else FIXED[kind][0] for name, kind in kinds.items()}
    return TorchOp(name=schema.qualified, schema=schema.text, fixed=fixed)


def _names_in_code(schema: Schema) -> Used:
    """Return the names that the generated code of an operator uses, with its schema written and derived."""
    text, names = free_names.marked_schema(schema)
    marked = parser.parse(text)
    spec = free_names.with_marks(_spec(marked, free_names.OPERATOR, OnnxOp(domain="d", op_type="O"), NOTHING))
    return free_names.names_in_code([spec, replace(spec, torch=_written(marked))], names)


def _unpassable(schema: Schema, spec: OpSpec, used: Used) -> Iterator[tuple[int, str]]:
    """Yield the arguments whose own names the generated Python needs, and uses for something else."""
    for a in schema.arguments:
        needed = a.keyword or is_composed(spec) or a in only_written(schema)
        if needed and a.name in used.python and a.name not in free_names.UNMARKED:
            yield a.at, f"{a.name!r} names something else in generated code, allowed: another name"


def _is_derived(schema: Schema, spec: OpSpec, used: Used) -> bool:
    """Return whether the torch schema that follows from a declaration is this one: its arguments are equal."""
    try:
        derived = parser.parse(torch_schema(spec))
    except UsageError:  # such as a default ahead of an argument without one
        return False
    one, other = ([(a.type.name, a.name, a.default, a.has_default, a.keyword) for a in s.arguments]
                  for s in (schema, derived))  # fmt: skip
    usable = all(_is_usable(a.name, used) and not is_written(a) for a in schema.arguments)
    return one == other and not schema.overload and usable


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
    taken = [*given_names, *named_results, *used.words, *used.derived, *TAKEN]
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
