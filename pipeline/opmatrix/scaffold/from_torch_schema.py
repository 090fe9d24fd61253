"""Draft an operator from a torch schema, or report each part that cannot be declared. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from opmatrix.declaration import torch_schema_parser
from opmatrix.declaration.torch_schema_parser import Parameter, Schema, Type, Value
from opmatrix.errors import did_you_mean
from opmatrix.scaffold.draft import FLOATS, SUMMARY, Draft, finished, op_type_of, operator_name, shape_rule, unused
from opmatrix.spec import Attribute, AttributeKind, Input, OnnxOp, OpSpec, Output, TorchOp

TENSORS = ("Tensor", "Tensor?", "Tensor[]")
KINDS: Mapping[str, AttributeKind] = {
    "float": "float", "int": "int", "bool": "bool", "str": "string",
    "float[]": "floats", "int[]": "ints",
}  # fmt: skip
ALLOWED = ", ".join((*TENSORS, *KINDS))

_NUMBER = "a number of no fixed kind, and an attribute of ONNX has one: write float or int"
_SIZE = (
    "a size that torch may trace as a symbol, and an attribute of ONNX is a constant: write int, or make it a Tensor"
)
_NO_ATTRIBUTE = "nothing that a node of ONNX can hold: leave it out"
_REASONS: Mapping[str, str] = {
    "Scalar": _NUMBER, "number": _NUMBER, "SymInt": _SIZE, "SymBool": _SIZE.replace("int,", "bool,"),
    "complex": "of a kind that neither LibTorch's stable ABI nor ONNX has: write float[]",
    "ScalarType": "a dtype, and an output's follows from the inputs': leave it out, or write int",
} | dict.fromkeys(
    ("Device", "Layout", "MemoryFormat", "Generator", "Dimname", "Storage", "Stream", "QScheme", "DeviceIndex"),
    _NO_ATTRIBUTE,
)  # fmt: skip
# Other spellings of a type.
_SPELLED: Mapping[str, str] = {
    "double": "float", "float32": "float", "float64": "float", "long": "int", "int64": "int", "int64_t": "int",
    "string": "str", "boolean": "bool", "list": "int[]", "List": "int[]", "Optional": "Tensor?", "ndarray": "Tensor",
}  # fmt: skip


def from_schema(text: str, *, domain: str, name: str = "", op_type: str = "") -> Draft:
    """Return the operator of a torch schema. Raises UsageError with column and reason of each undeclarable part."""
    schema = torch_schema_parser.parse(text)
    if refused := [*_refused(schema)]:
        torch_schema_parser.refuse("the schema cannot be declared:", schema.text, refused)
    variable = unused("T", [p.name for p in (*schema.arguments, *schema.results)])
    inputs, attributes, outputs = parts(schema, variable, lambda argument: KINDS[argument.type.name])
    name = name or operator_name(schema.name)
    spec = OpSpec(
        name=name,
        summary=SUMMARY,
        torch=TorchOp(name=schema.qualified),
        onnx=OnnxOp(domain=domain, op_type=op_type or op_type_of(name)),
        types={variable: FLOATS},
        inputs=inputs,
        attributes=attributes,
        outputs=outputs,
        tolerances={},
    )
    return finished(Draft(spec=spec, notes=tuple(_notes(schema)), origin=f"declared from {schema.text}"))


def parts(
    schema: Schema, variable: str, kind_of: Callable[[Parameter], AttributeKind | None]
) -> tuple[tuple[Input, ...], tuple[Attribute, ...], tuple[Output, ...]]:
    """Return the inputs, attributes and outputs of a schema, the tensors of type `variable`.

    `kind_of` returns None for a non-tensor argument that is left out. An unnamed result is named y.
    """
    inputs = tuple(
        Input(name=a.name, type=variable, optional=kind == "Tensor?", variadic=kind == "Tensor[]", doc="FILL IN")
        for a in schema.arguments
        if (kind := a.type.name) in TENSORS
    )
    numbers = [(a, kind_of(a)) for a in schema.arguments if a.type.name not in TENSORS]
    attributes = tuple(_attribute(a, kind) for a, kind in numbers if kind)
    taken = [*(i.name for i in inputs), *(a.name for a in attributes), *(r.name for r in schema.results)]
    outputs = []
    for index, result in enumerate(schema.results):
        name = result.name or unused("y" if len(schema.results) == 1 else f"y{index}", taken)
        taken.append(name)
        outputs.append(Output(name=name, type=variable, shape=shape_rule(inputs, variable), doc="FILL IN"))
    return inputs, attributes, tuple(outputs)


def _as_float(value: Value) -> Value:
    """Return an integer as a float, and any other value as it is: the validation reports it."""
    try:
        return float(value) if isinstance(value, int) else value
    except OverflowError:
        return value


def _attribute(argument: Parameter, kind: AttributeKind) -> Attribute:
    """Return the attribute for a non-tensor argument; an integer default of a float becomes a float."""
    default = argument.default
    if kind == "float":
        default = _as_float(default)
    if kind == "floats" and isinstance(default, tuple):
        default = tuple(map(_as_float, default))
    return Attribute(name=argument.name, kind=kind, default=default, doc="FILL IN")  # type: ignore[arg-type]  # of its kind


def _refused(schema: Schema) -> Iterator[tuple[int, str]]:
    """Yield the position and the reason of each part that cannot be declared."""
    if not schema.namespace:
        yield 0, f"an operator of torch has a namespace: write 'my::{schema.name}'"
    if schema.namespace in ("aten", "prim", "prims"):
        yield 0, f"{schema.namespace} is torch's own: choose one of yours, or give --override {schema.qualified}"
    if schema.overload:
        at = schema.text.index(f".{schema.overload}")
        yield at, f"an operator has one overload here: leave out '.{schema.overload}', and give each a name of its own"
    if schema.more:
        yield schema.text.index("..."), "any number of arguments of any kind; name each: an operator has a fixed schema"
    for argument in schema.arguments:
        yield from _refused_argument(argument)
    yield from _order(schema)
    if not any(a.type.name == "Tensor" for a in schema.arguments):
        yield schema.text.index("("), "no argument is a Tensor; at least one is needed, beside which outputs are made"
    yield from refused_results(schema)


def _refused_argument(argument: Parameter) -> Iterator[tuple[int, str]]:
    """Yield why an argument can be neither an input nor an attribute."""
    found, at = argument.type, argument.type.at
    if found.alias:
        yield at, torch_schema_parser.aliased(found)
    elif found.name in TENSORS:
        if argument.has_default and argument.default is not None:
            yield argument.at, f"{argument.name!r} has a default, and none of a tensor but None can be said"
    elif found.name not in KINDS:
        yield at, why_no_type(found)
    elif argument.has_default and argument.default is None:
        yield argument.at, f"{argument.name!r} cannot be None: it is {found.name}"


def why_no_type(found: Type) -> str:
    """Return why an argument of this type cannot be declared."""
    name, element = found.name, found.element
    if (sized := re.fullmatch(r"(\w+\??)\[\d+\]", name)) and f"{sized[1]}[]" in (*TENSORS, *KINDS):
        return (
            f"{name} has a fixed length, which a declaration cannot say: write {sized[1]}[], and let the kernel check"
        )
    if name == "Tensor?[]":
        return "Tensor?[] is any number of tensors, any of them absent, and in ONNX none may be: write Tensor[]"
    if name == "Tensor[]?":
        return "Tensor[]? may be absent, and may be empty as well: write Tensor[], of which none may be given"
    if name.endswith("?") and name[:-1] in KINDS:
        return (
            f"{name} may be None, and an attribute of ONNX may not: write {name[:-1]}, and give a default that means it"
        )
    if name.startswith("bool["):
        return f"{name} is a list that torch's legacy exporter cannot trace: write int[], of 0 and 1"
    if name == "str[]":
        return "str[] is a list of texts, which is not supported yet: write str, and part it in the kernel"
    if element in _REASONS:
        return f"{name} is {_REASONS[element]}"
    if spelled := _SPELLED.get(element):
        return f"{name} is no type of a torch schema; did you mean {spelled!r}?"
    return f"{name} is no type that can be declared, allowed: {ALLOWED}{did_you_mean(name, (*TENSORS, *KINDS))}"


def refused_results(schema: Schema) -> Iterator[tuple[int, str]]:
    """Yield the position and the reason of each result that cannot be an output."""
    if schema.more_results:
        yield schema.results_at, "any number of results: the legacy exporter must know how many; name each"
    elif not schema.results:
        yield schema.results_at, "no result: an operator of ONNX has at least one output"
    for found in (r.type for r in schema.results):
        if found.alias:
            yield found.at, torch_schema_parser.aliased(found)
        elif found.name.startswith("Tensor["):
            yield found.at, f"{found.name} is any number of outputs: the legacy exporter must know how many; name each"
        elif found.name == "Tensor?":
            why = "Tensor? is an output that may be absent: an operator always gives all of them; write Tensor"
            yield found.at, why
        elif found.name != "Tensor":
            near = did_you_mean(found.name, ["Tensor"])
            yield found.at, f"{found.name} is no output of an operator of ONNX, allowed: Tensor{near}"


def _order(schema: Schema) -> Iterator[tuple[int, str]]:
    """Yield arguments in the wrong order: inputs come first, a variadic one last of them, then attributes."""
    variadic = attribute = with_default = ""  # the name of the first so far
    for argument in schema.arguments:
        name, kind = argument.name, argument.type.name
        if kind in TENSORS and attribute:
            yield argument.type.at, f"{name!r} follows {attribute!r}, which is no tensor: " \
                f"put it ahead, as a node of ONNX has inputs first"  # fmt: skip
        elif kind in TENSORS and variadic:
            yield argument.type.at, f"{name!r} follows {variadic!r}, of which there are " \
                f"any number: put it ahead, as ONNX has a variadic input last"  # fmt: skip
        elif kind in KINDS and argument.keyword and not argument.has_default and with_default:
            yield argument.at, f"{name!r} has no default, but {with_default!r} before it has one: put it ahead"
        variadic = variadic or (name if kind == "Tensor[]" else "")
        attribute = attribute or (name if kind in KINDS else "")
        with_default = with_default or (name if kind in KINDS and argument.has_default else "")


def _notes(schema: Schema) -> Iterator[str]:
    for argument in schema.arguments:
        if argument.type.name in TENSORS and argument.has_default:
            yield f"{argument.name}: its default None is left out, so torch's callers write None where it is absent"
    keywords = [a.name for a in schema.arguments if a.keyword]
    if keywords:
        yield f"{', '.join(keywords)}: may be given by position as well as by name; a declaration has no '*'"
