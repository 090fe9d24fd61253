"""What follows from a declaration: the torch schema, dtypes, attribute values in ONNX, and which libraries exist."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import get_args

from opmatrix.spec import Attribute, AttributeKind, AttributeValue, DType, Input, Model, OpSpec
from opmatrix.version import older

# The files of native/<name>/ that have a meaning by their name.
KERNEL, OWN_TORCH, OWN_ORT = HANDWRITTEN = ("kernel.h", "torch.cc", "ort.cc")
ONLY_KERNEL = frozenset({KERNEL})

DTYPES: tuple[DType, ...] = get_args(DType)

_TORCH_KINDS: Mapping[AttributeKind, str] = {
    "float": "float", "int": "int", "string": "str", "bool": "bool",
    "floats": "float[]", "ints": "int[]", "strings": "str[]", "bools": "bool[]",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of the torch schema, and the input or attribute that it belongs to."""

    name: str
    type: str
    default: AttributeValue | None
    source: Input | Attribute

    def __str__(self) -> str:
        return f"{self.type} {self.name}" + ("" if self.default is None else f"={_torch_literal(self.default)}")


def _torch_literal(value: AttributeValue) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_torch_literal, value)) + "]"
    return repr(value)


def torch_name(attribute: Attribute) -> str:
    """Return the name of an attribute in the torch schema."""
    return attribute.torch_name or attribute.name


def onnx_name(attribute: Attribute) -> str:
    """Return the name of an attribute in the ONNX node."""
    return attribute.onnx_name or attribute.name


def torch_arguments(spec: OpSpec) -> tuple[Argument, ...]:
    """Return the arguments in order: inputs, then attributes, both as declared."""
    inputs = (
        Argument(
            name=i.name,
            type="Tensor[]" if i.variadic else "Tensor?" if i.optional else "Tensor",
            default=None,
            source=i,
        )
        for i in spec.inputs
    )
    attributes = (
        Argument(name=torch_name(a), type=_TORCH_KINDS[a.kind], default=a.default, source=a)
        for a in spec.attributes
        if a.kind != "tensor"
    )
    return (*inputs, *attributes)


def torch_schema(spec: OpSpec) -> str:
    """Return ``ns::name(Tensor x, float eps=1e-05) -> Tensor``. Raises ValueError for an operator without torch."""
    if spec.torch is None:
        raise ValueError(f"{spec.name} is declared without a torch operator")
    arguments = ", ".join(map(str, torch_arguments(spec)))
    returns = ", ".join("Tensor" for _ in spec.outputs)
    return f"{spec.torch.name}({arguments}) -> " + (returns if len(spec.outputs) == 1 else f"({returns})")


def dtype_tuples(spec: OpSpec) -> tuple[Mapping[str, DType], ...]:
    """Return every binding of the type variables, the first variable slowest."""
    return tuple(dict(zip(spec.types, chosen, strict=True)) for chosen in itertools.product(*spec.types.values()))


def dtype_of(declared: str, types: Mapping[str, DType]) -> DType:
    """Return the dtype of an input or output declared as `declared` under a binding of the type variables."""
    return types[declared] if declared in types else DTYPES[DTYPES.index(declared)]


def to_float32(value: float) -> float:
    """Round to float32: what an ONNX float attribute can hold. Raises OverflowError beyond its range."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def as_float32(attribute: Attribute, value: AttributeValue) -> AttributeValue:
    """Return `value` as ONNX stores it: floats rounded to float32, other values unchanged."""
    if not attribute.kind.startswith("float"):
        return value
    if isinstance(value, tuple):
        return tuple(to_float32(float(v)) for v in value)
    return to_float32(float(value))


def onnx_value(attribute: Attribute, value: AttributeValue) -> AttributeValue:
    """Return `value` as an ONNX node stores it: as `as_float32`, with 1 and 0 for bools, which ONNX does not have."""
    if attribute.kind == "bools" and isinstance(value, tuple):
        return tuple(int(v) for v in value)
    return int(value) if isinstance(value, bool) else as_float32(attribute, value)


def onnx_kind(kind: AttributeKind) -> str:
    """Return the name of an attribute's type in ONNX, which has no bools: "FLOAT", "INTS"."""
    return kind.upper().replace("BOOL", "INT")


def attribute_values(spec: OpSpec, model: Model) -> dict[str, AttributeValue]:
    """Return the value of every attribute in `model`, defaults included, as given (not yet rounded)."""
    given = {a.name: model.attributes.get(a.name, a.default) for a in spec.attributes}
    return {name: value for name, value in given.items() if value is not None}


def has_kernel(spec: OpSpec) -> bool:
    """Return whether the operator has its own kernel."""
    return spec.runtime == "kernel" and not spec.uses


def has_kernel_object(spec: OpSpec, written: Set[str]) -> bool:
    """Return whether its kernel is compiled once, for both libraries; `written` are its hand-written files."""
    return has_kernel(spec) and (spec.kernel is not None or KERNEL in written)


def is_own(file: str, spec: OpSpec, written: Set[str]) -> bool:
    """Return whether a binding, `OWN_TORCH` or `OWN_ORT`, is written by hand instead of generated."""
    has_library = has_torch_library(spec) if file == OWN_TORCH else has_kernel(spec)
    return file in written and has_library


def has_torch_library(spec: OpSpec) -> bool:
    """Return whether a torch library is built for the operator."""
    return has_kernel(spec) and spec.torch is not None and not spec.torch.overrides and not spec.torch.python


def stable_abi_since(spec: OpSpec) -> str:
    """Return the first torch of the stable ABI library; lists and strings are arguments there since torch 2.10."""
    boxed = any(i.variadic for i in spec.inputs) or any(
        a.kind.endswith("s") or a.kind == "string" for a in spec.attributes
    )
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
    return {"custom", "decomposed"}.issubset(spec.lowerings)
