"""What follows from a declaration: the torch schema, dtypes, attribute values in ONNX, and which libraries exist."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from opmatrix.basics.version import older
from opmatrix.project.dtypes import DTYPES, FOUR_BITS
from opmatrix.signature import parser
from opmatrix.signature.parser import Parameter, Schema
from opmatrix.spec import Attribute, AttributeKind, AttributeValue, DType, Input, Model, OpSpec, Output

# The files of native/<name>/ that have a meaning by their name.
KERNEL, OWN_TORCH, OWN_ORT = HANDWRITTEN = ("kernel.h", "torch.cc", "ort.cc")
ONLY_KERNEL = frozenset({KERNEL})

# The domains whose operators the ONNX specification defines. Others below ai.onnx have other owners, such as
# ai.onnx.contrib of onnxruntime-extensions.
ONNX_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training")

# The values that `TorchOp.fixed` can give to an argument, by the argument's type; `doit new` gives the first one.
FIXED: Mapping[str, tuple[str, ...]] = {
    "ScalarType": ("float32", *(dtype for dtype in DTYPES if dtype not in ("float32", "string", *FOUR_BITS))),
    "Layout": ("strided",), "Device": ("cpu",),
}  # fmt: skip

_TORCH_KINDS: Mapping[AttributeKind, str] = {
    "float": "float", "int": "int", "string": "str", "bool": "bool",
    "floats": "float[]", "ints": "int[]", "strings": "str[]", "bools": "bool[]",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Constant:
    """An argument of a written schema that belongs to no input or attribute: `value` is the only legal one.

    It is the default, or what `TorchOp.fixed` has.
    """

    name: str
    value: bool | float | str | None

    def __str__(self) -> str:
        return f"{self.name} must be {self.value!r}"


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of the torch schema, and the input or attribute that it belongs to; `keyword`: only by name."""

    name: str
    type: str
    default: AttributeValue
    source: Input | Attribute | Constant
    has_default: bool = False
    keyword: bool = False

    def __str__(self) -> str:
        return f"{self.type} {self.name}" + (f"={_torch_literal(self.default)}" if self.has_default else "")


def _torch_literal(value: AttributeValue) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_torch_literal, value)) + "]"
    if isinstance(value, str):  # torch reads no \x01
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return "'" + "".join(c if c.isprintable() or c > "\x7f" else f"\\{ord(c):03o}" for c in escaped) + "'"
    return repr(value)


def torch_name(part: Input | Attribute) -> str:
    """Return the name of an input or an attribute in the torch schema."""
    return part.torch_name or part.name


def torch_kind(part: Input | Attribute) -> str:
    """Return the type in a derived torch schema; in a written one, lists may have a length, and ints may be SymInt."""
    if isinstance(part, Attribute):
        return _TORCH_KINDS[part.kind] + "?" * part.optional
    return "Tensor[]" if part.variadic else "Tensor?" if part.optional else "Tensor"


def torch_parts(spec: OpSpec) -> list[Input | Attribute]:
    """Return the inputs and attributes that torch has, both as declared."""
    return [*spec.inputs, *(a for a in spec.attributes if a.kind != "tensor")]


_parsed = cache(parser.parse)


def written_schema(spec: OpSpec) -> Schema | None:
    """Return the torch schema that the declaration contains, or None where it follows from the declaration."""
    return _parsed(spec.torch.schema) if spec.torch and spec.torch.schema else None


def _parameters(spec: OpSpec) -> tuple[Parameter, ...]:
    schema = written_schema(spec)
    return schema.arguments if schema else ()


def onnx_name(attribute: Attribute) -> str:
    """Return the name of an attribute in the ONNX node."""
    return attribute.onnx_name or attribute.name


def is_mutable(spec: OpSpec) -> bool:
    """Return whether the operator writes arguments in torch, ``Tensor(a!)``."""
    return any(map(is_written, _parameters(spec)))


def scalars(spec: OpSpec) -> tuple[str, ...]:
    """Return the arguments of type Scalar or ``Scalar?`` that belong to an attribute."""
    names = {torch_name(a) for a in spec.attributes}
    return tuple(a.name for a in _parameters(spec) if a.type.element == "Scalar" and a.name in names)


def is_fixed(argument: Parameter) -> bool:
    """Return whether `TorchOp.fixed` has to have an argument that belongs to no input and no attribute."""
    return argument.type.name.removesuffix("?") in FIXED and not argument.has_default


def fixed(spec: OpSpec) -> tuple[Argument, ...]:
    """Return the arguments of the written schema that `TorchOp.fixed` names."""
    values = spec.torch.fixed if spec.torch else {}
    arguments = [_written(a, None) for a in _parameters(spec) if a.name in values]
    return tuple(replace(a, source=Constant(name=a.name, value=values[a.name])) for a in arguments)


def seeds(spec: OpSpec) -> dict[str, Attribute]:
    """Return the attribute that each argument of type Generator or ``Generator?`` is the seed of, by its name."""
    attributes = {torch_name(a): a for a in spec.attributes}
    generators = [a.name for a in _parameters(spec) if a.type.element == "Generator"]
    return {name: attributes[name] for name in generators if name in attributes}


def seed_range(seed: Attribute) -> tuple[int, int | None]:
    """Return the smallest number that a generator gives for a seed, and the one after the greatest, None for 2**63."""
    end = 2**63 if seed.maximum is None else int(seed.maximum) + 1
    return int(seed.minimum or 0), end if end < 2**63 else None


def is_composed(spec: OpSpec) -> bool:
    """Return whether the operator that others call is defined in Python, by the one in the library.

    The one in the library is functional, it returns all outputs, has float or int for a Scalar, int for a Generator,
    and no argument of `TorchOp.fixed`. All of opmatrix refers to it. fake.py defines the operator with the written
    schema, which calls it.
    """
    return is_mutable(spec) or bool(scalars(spec)) or bool(fixed(spec)) or bool(seeds(spec))


def is_written(argument: Parameter) -> bool:
    """Return whether an operator writes an argument of its schema, ``Tensor(a!)``."""
    return "!" in argument.type.alias


def written_outputs(spec: OpSpec) -> dict[str, Output]:
    """Return the output that each written argument gets, by the argument's name in the written schema."""
    inputs = {torch_name(i): i.name for i in spec.inputs}
    outputs = {o.writes or o.name: o for o in spec.outputs}
    return {a.name: outputs[inputs.get(a.name, a.name)] for a in _parameters(spec) if is_written(a)}


def torch_arguments(spec: OpSpec) -> tuple[Argument, ...]:
    """Return the arguments of the operator in the library, in order: as the written schema has them, without ``out=``,
    Scalar, Generator and those of `TorchOp.fixed`; else inputs, then attributes, as declared."""
    parts = torch_parts(spec)
    if schema := written_schema(spec):
        by_name = {torch_name(part): part for part in parts}
        left_out = spec.torch.fixed if spec.torch else {}
        given = [a for a in schema.arguments if a.name in by_name or not (is_written(a) or a.name in left_out)]
        return tuple(_written(one, by_name.get(one.name)) for one in given)
    return tuple(
        Argument(
            name=torch_name(p),
            type=torch_kind(p),
            default=p.default if isinstance(p, Attribute) else None,
            source=p,
            has_default=isinstance(p, Attribute) and (p.optional or p.default is not None),
        )
        for p in parts
    )


def _written(argument: Parameter, part: Input | Attribute | None) -> Argument:
    default, has_default = argument.default, argument.has_default
    if argument.type.element == "Generator" and isinstance(part, Attribute):
        required = part.default is None and not part.optional
        # torch needs a default behind arguments that have one. It is never used: fake.py always gives a number.
        default, has_default = (
            seed_range(part)[0] if required else part.default,
            has_default and not (required and argument.keyword),
        )
    floats = part.kind.startswith("float") if isinstance(part, Attribute) else argument.type.name == "float"
    if floats and default is not None:
        default = tuple(map(float, default)) if isinstance(default, tuple) else float(default)  # type: ignore[arg-type]  # validated
    return Argument(
        name=argument.name,
        type=torch_kind(part) if part and argument.type.element in ("Scalar", "Generator") else argument.type.name,
        default=default,  # type: ignore[arg-type]  # validated: a value of the attribute's kind
        source=part or Constant(name=argument.name, value=default),  # type: ignore[arg-type]  # as above
        has_default=has_default,
        keyword=argument.keyword,
    )


@dataclass(frozen=True, kw_only=True)
class Call:
    """The arguments of a call in torch, by position and by name: a value for each, or the index of an input."""

    by_position: tuple[tuple[int | None, Any], ...]
    by_name: tuple[tuple[str, int | None, Any], ...]

    def __call__(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with `inputs`, in the declared order, in their places."""
        positional = tuple([value if n is None else inputs[n] for n, value in self.by_position])
        return positional, {name: value if n is None else inputs[n] for name, n, value in self.by_name}


# Of a call by name, torch 1.13 takes `self` for the operator itself, and the dynamo exporter of 2.6 `out` for a tensor.
BY_POSITION = ("self", "out")


def call_of(spec: OpSpec, attributes: Mapping[str, Any]) -> Call:
    """Return the call with `attributes`, by their names in torch; of a derived schema, inputs are given by position,
    and attributes up to the last in BY_POSITION."""
    if written_schema(spec) is None:
        given = [*attributes.items()]
        count = max((n for n, (name, _) in enumerate(given, 1) if name in BY_POSITION), default=0)
        return Call(
            by_position=(*((n, None) for n in range(len(spec.inputs))), *((None, value) for _, value in given[:count])),
            by_name=tuple((name, None, value) for name, value in given[count:]),
        )
    arguments = torch_arguments(spec)
    indices = [spec.inputs.index(a.source) if isinstance(a.source, Input) else None for a in arguments]
    values = [(a, index, attributes.get(a.name, a.default)) for a, index in zip(arguments, indices, strict=True)]
    return Call(
        by_position=tuple((index, value) for a, index, value in values if not a.keyword),
        by_name=tuple((a.name, index, value) for a, index, value in values if a.keyword),
    )


@dataclass(frozen=True, kw_only=True)
class WrittenArgument:
    """An argument of such a call: a value, or the index of an input. `output`: what is written into it, without an
    input by ``out=``. `constant`: the name in `TorchOp.fixed`, which torch has as an object."""

    name: str
    keyword: bool
    value: Any
    constant: str | None
    input: int | None
    output: int | None


@dataclass(frozen=True, kw_only=True)
class WrittenCall:
    """The call of an operator that writes arguments. `outputs` says where each output is: in the argument of that name,
    or, with None, in the result of that index."""

    arguments: tuple[WrittenArgument, ...]
    outputs: tuple[tuple[str | None, int], ...]


def written_call(spec: OpSpec, attributes: Mapping[str, Any]) -> WrittenCall:
    """Return the call with `attributes`, by their names in torch, as others make it. Needs a written schema."""
    schema, into = written_schema(spec), {name: spec.outputs.index(o) for name, o in written_outputs(spec).items()}
    assert schema is not None
    places = {torch_name(part): n for n, part in enumerate(spec.inputs)}
    arguments = tuple(
        WrittenArgument(
            name=a.name,
            keyword=a.keyword,
            value=attributes.get(a.name, a.default),
            constant=spec.torch.fixed.get(a.name) if spec.torch else None,
            input=places.get(a.name),
            output=into.get(a.name),
        )
        for a in schema.arguments
    )
    fresh = iter([n for n, result in enumerate(schema.results) if not is_written(result)])
    names = {n: name for name, n in into.items()}
    outputs = tuple((names.get(n), -1 if n in names else next(fresh)) for n in range(len(spec.outputs)))
    return WrittenCall(arguments=arguments, outputs=outputs)


def constants(spec: OpSpec) -> list[Constant]:
    """Return the arguments of a written schema that have one legal value."""
    return [a.source for a in torch_arguments(spec) if isinstance(a.source, Constant)] if written_schema(spec) else []


def torch_variable(spec: OpSpec, part: Input | Attribute | Constant) -> str:
    """Return the variable of generated code for an argument: a written schema may have names that no code can."""
    return part.name if isinstance(part, Constant) or (spec.torch and spec.torch.schema) else torch_name(part)


def torch_overload(spec: OpSpec) -> str:
    """Return the name of the overload in the library, "" for the default one, which a composed operator has there."""
    schema = written_schema(spec)
    return schema.overload if schema and not is_composed(spec) else ""


def torch_operator_name(spec: OpSpec) -> str:
    """Return ``namespace::name`` of the operator in the library. Raises ValueError without torch."""
    if spec.torch is None:
        raise ValueError(f"{spec.name} is declared without a torch operator")
    schema = written_schema(spec)
    if schema is None or not is_composed(spec):
        return spec.torch.name
    return "_".join(filter(None, (spec.torch.name, schema.overload, "functional" if is_mutable(spec) else "typed")))


def torch_qualified(spec: OpSpec) -> str:
    """Return ``namespace::name``, or ``namespace::name.overload``. Raises ValueError for an operator without torch."""
    name, overload = torch_operator_name(spec), torch_overload(spec)
    return f"{name}.{overload}" if overload else name


def torch_schema(spec: OpSpec) -> str:
    """Return ``ns::name(Tensor x, float eps=1e-05) -> Tensor``. Raises ValueError for an operator without torch."""
    if written_schema(spec) and not is_composed(spec):
        return callers_schema(spec)
    arguments = list(map(str, torch_arguments(spec)))
    if star := [n for n, argument in enumerate(torch_arguments(spec)) if argument.keyword]:
        arguments.insert(star[0], "*")
    returns = ", ".join("Tensor[]" if output.variadic else "Tensor" for output in spec.outputs)
    returns = returns if len(spec.outputs) == 1 else f"({returns})"
    return f"{torch_qualified(spec)}({', '.join(arguments)}) -> {returns}"


def callers_name(spec: OpSpec) -> str:
    """Return the name by which others call the operator: that of `torch_qualified`, unless it is composed."""
    schema = written_schema(spec)
    if spec.torch is None or schema is None:
        return torch_qualified(spec)
    return f"{spec.torch.name}.{schema.overload}" if schema.overload else spec.torch.name


def callers_schema(spec: OpSpec) -> str:
    """Return the schema by which others call the operator: that of `torch_schema`, unless it is composed."""
    schema = written_schema(spec)
    return callers_name(spec) + schema.text[schema.text.index("(") :] if schema else torch_schema(spec)


def dtype_tuples(spec: OpSpec) -> tuple[Mapping[str, DType], ...]:
    """Return every binding of the type variables, the first variable slowest."""
    return tuple(dict(zip(spec.types, chosen, strict=True)) for chosen in itertools.product(*spec.types.values()))


def tensors(spec: OpSpec) -> tuple[Input | Output, ...]:
    """Return the inputs and the outputs."""
    return (*spec.inputs, *spec.outputs)


def allowed_dtypes(spec: OpSpec, declared: str) -> tuple[str, ...]:
    """Return the dtypes that an input or output can have whose type is `declared`: a type variable, or a dtype."""
    return spec.types.get(declared, (declared,))


def dtypes(spec: OpSpec) -> frozenset[str]:
    """Return the dtypes that its inputs and outputs can have."""
    return frozenset(dtype for part in tensors(spec) for dtype in allowed_dtypes(spec, part.type))


def model_dtypes(spec: OpSpec, model: Model) -> list[str]:
    """Return the dtypes of the inputs and outputs of a model."""
    return [model.types.get(part.type, part.type) for part in tensors(spec)]


def dtype_of(declared: str, types: Mapping[str, DType]) -> DType:
    """Return the dtype of an input or output declared as `declared` under a binding of the type variables."""
    return types[declared] if declared in types else DTYPES[DTYPES.index(declared)]


def to_float32(value: float) -> float:
    """Round to float32: what an ONNX float attribute can hold. Raises OverflowError beyond its range."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def as_float32(attribute: Attribute, value: AttributeValue) -> AttributeValue:
    """Return `value` as ONNX stores it: floats rounded to float32, other values unchanged."""
    if value is None or not attribute.kind.startswith("float"):
        return value
    if isinstance(value, tuple):
        return tuple(to_float32(float(v)) for v in value)  # type: ignore[arg-type]  # floats
    return to_float32(float(value))


def onnx_value(attribute: Attribute, value: AttributeValue) -> AttributeValue:
    """Return `value` as an ONNX node stores it: as `as_float32`, with 1 and 0 for bools, which ONNX does not have."""
    if attribute.kind == "bools" and isinstance(value, tuple):
        return tuple(int(v) for v in value)  # type: ignore[arg-type]  # bools
    return int(value) if isinstance(value, bool) else as_float32(attribute, value)


def onnx_kind(kind: AttributeKind) -> str:
    """Return the name of an attribute's type in ONNX, which has no bools: "FLOAT", "INTS"."""
    return kind.upper().replace("BOOL", "INT")


def attribute_values(spec: OpSpec, model: Model) -> dict[str, AttributeValue]:
    """Return the value of every attribute in `model`, defaults included, as given (not yet rounded)."""
    given = {a.name: model.attributes.get(a.name, a.default) for a in spec.attributes}
    return {a.name: given[a.name] for a in spec.attributes if a.optional or given[a.name] is not None}


def is_off(spec: OpSpec, output: Output, attributes: Mapping[str, object]) -> bool:
    """Return whether the attribute that `Output.optional` names is false, so that the output is an empty tensor of
    shape (0,). `attributes` may omit defaults."""
    switches = [a for a in spec.attributes if a.name == output.optional]
    return any(attributes.get(a.name, a.default) in (False, 0) for a in switches)


def has_kernel(spec: OpSpec) -> bool:
    """Return whether the operator has its own kernel."""
    return spec.runtime == "kernel" and not spec.uses


def is_copied(spec: OpSpec, declared: str) -> bool:
    """Return whether a declared type may be a dtype that a kernel has in another form than ONNX Runtime."""
    return not {"string", *FOUR_BITS}.isdisjoint(allowed_dtypes(spec, declared))


def node_type(part: Input | Output) -> str:
    """Return the declared type of an input or an output of the ONNX node."""
    return part.onnx_type or part.type


def has_onnx_types(spec: OpSpec) -> bool:
    """Return whether an input or an output is of another dtype in the ONNX node than in torch."""
    return any(part.onnx_type for part in tensors(spec))


def has_four_bits(spec: OpSpec) -> bool:
    """Return whether an input or an output of the ONNX node may be of int4 or uint4."""
    return any(not {*FOUR_BITS}.isdisjoint(allowed_dtypes(spec, node_type(part))) for part in tensors(spec))


def has_string_lists(spec: OpSpec) -> bool:
    """Return whether an attribute is a list of strings: torch's legacy exporter traces none, and ONNX Runtime gives
    one to a kernel from 1.25 on."""
    return any(a.kind == "strings" for a in spec.attributes)


def has_kernel_object(spec: OpSpec, written: Set[str]) -> bool:
    """Return whether its kernel is compiled once, for both libraries; `written` are its hand-written files."""
    return has_kernel(spec) and (spec.kernel is not None or KERNEL in written)


def is_own(file: str, spec: OpSpec, written: Set[str]) -> bool:
    """Return whether a binding, `OWN_TORCH` or `OWN_ORT`, is written by hand instead of generated."""
    return file in written and (has_torch_library(spec) if file == OWN_TORCH else has_kernel(spec))


def has_torch_library(spec: OpSpec) -> bool:
    """Return whether a torch library is built for the operator."""
    return has_kernel(spec) and spec.torch is not None and not spec.torch.overrides and not spec.torch.python


def stable_abi_since(spec: OpSpec) -> str:
    """Return the first torch of the stable ABI library, which has lists and strings since torch 2.10."""
    lists = any(part.variadic for part in tensors(spec)) or any(a.kind.endswith("s") for a in spec.attributes)
    boxed = lists or any(a.kind == "string" for a in spec.attributes)
    return "2.10" if has_torch_library(spec) and boxed else "2.9"


def is_classic(spec: OpSpec, torch: str) -> bool:
    """Return whether `torch`, such as "2.6", needs its own library, compiled with its C++ headers."""
    return has_torch_library(spec) and older(torch, stable_abi_since(spec))


def overridden_in(spec: OpSpec, torch: str) -> tuple[str, ...]:
    """Return the ATen operators that a declaration overrides in this torch."""
    overrides = spec.torch.overrides if spec.torch else ()
    return tuple(o.name for o in overrides if not older(torch, o.first or torch) and not older(o.last or torch, torch))


def has_ort_library(spec: OpSpec) -> bool:
    """Return whether an ONNX Runtime library is built for the operator, or for those that it uses."""
    return spec.runtime == "kernel"


def is_required(part: Input) -> bool:
    """Return whether every node and every call has exactly one tensor for an input."""
    return not part.optional and not part.variadic


def is_parameter(part: Input) -> bool:
    """Return whether an input has one element in every case: a parameter rather than data."""
    return part.dims is not None and all(d == 1 for d in part.dims)


def has_function_body(spec: OpSpec) -> bool:
    """Return whether custom models are also written with a function body: their decomposition."""
    return {"custom", "decomposed"}.issubset(spec.lowerings) and not has_onnx_types(spec)
