"""What an argument of a torch schema can be declared as, or why it cannot. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from opmatrix.declaration import torch_schema_parser
from opmatrix.declaration.torch_schema_parser import Parameter, Schema, Type, Value
from opmatrix.declaration.torch_signature import FIXED, is_fixed, is_written
from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.declaration.validation.mistake import duplicates
from opmatrix.errors import did_you_mean
from opmatrix.spec import Attribute, AttributeKind

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
    return re.sub(r"^(?:int|SymInt)(\[\d*\])?$", lambda found: "int[]" if found[1] else "int", kind)


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
        if why := torch_schema_parser.why_not_in_ops(part, name):
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
        yield at, torch_schema_parser.aliased(found)
    elif found.alias and found.name != "Tensor":
        yield at, torch_schema_parser.written_type(found)
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
    """Yield why an attribute cannot have the default of an argument."""
    found, value = kind(argument), argument.default
    given = found is not None and value is not None
    if given and (why := value_mistake(Attribute(name=argument.name, kind=found), value)):  # type: ignore[arg-type]  # judged there
        yield argument.at, f"the default of {argument.name!r}: {why}"
    elif isinstance(value, str) and not value.isprintable():
        yield argument.at, f"the default of {argument.name!r}: found {value!r}, allowed: printable characters"


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
            yield found.at, torch_schema_parser.aliased(found)
        elif found.alias and found.alias not in written:
            yield found.at, torch_schema_parser.no_argument(found, schema)
        elif found.name.startswith("Tensor["):
            allowed = "name each" if not variadic else "name each; Tensor[] is allowed as the last result"
            yield found.at, f"{found.name} is any number of outputs: an exporter must know how many; {allowed}"
        elif found.name == "Tensor?":
            yield found.at, torch_schema_parser.EMPTY_RESULT
        elif found.name != "Tensor":
            near = did_you_mean(found.name, ["Tensor"])
            yield found.at, f"{found.name} is not an output of an operator of ONNX, allowed: Tensor{near}"
