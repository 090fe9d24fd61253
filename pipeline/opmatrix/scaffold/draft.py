"""The draft of a new operator: its declaration, and what `doit new` writes besides. Pure."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain, count

from opmatrix.basics.errors import UsageError
from opmatrix.declaration import validation
from opmatrix.declaration.validation.operator import CPP_KEYWORDS, MACROS
from opmatrix.signature.signature import ONNX_DOMAINS, dtype_of, is_required
from opmatrix.sizes.variadic import sure_inputs
from opmatrix.spec import AttributeKind, AttributeValue, DType, Input, Model, OpSpec, Output, SameAs, Tolerance

USUAL_DTYPES: tuple[DType, ...] = ("float32", "float64")
# For results that are rounded a few times. The README gives the reason for other limits.
_LIMITS = {
    "float32": Tolerance(rtol=1e-6, atol=1e-6), "float64": Tolerance(rtol=1e-14, atol=1e-14),
    "float16": Tolerance(rtol=1e-3, atol=1e-5), "bfloat16": Tolerance(rtol=1e-2, atol=1e-5),
}  # fmt: skip
_EXACT = Tolerance(rtol=0.0, atol=0.0)
SHAPE = (3, 4)
SUMMARY = "TODO: what it computes, in one sentence."
# Attribute values of the first model, which sets those without a default, and of the second, which sets all.
VALUES: Mapping[AttributeKind, tuple[AttributeValue, AttributeValue]] = {
    "float": (0.5, -1.75), "int": (1, 2), "bool": (True, False), "string": ("none", "none"),
    "floats": ((0.5, 2.0), (-1.75,)), "ints": ((0, 1), (1,)), "strings": (("a", "b"), ("",)),
}  # fmt: skip
_MACRO = re.compile(r"(?:_[A-Z]|[A-Z][A-Z0-9]+_|[LMP]_)\w*|[A-Z][A-Z0-9_]+")
_OF_ONNX_RUNTIME = ("com.microsoft", "com.ms.internal")


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A new operator.

    Kernel and reference are a placeholder that copies an input; but if `aten` names an operator of torch, the reference
    raises instead, because a copy would be a wrong result. `notes` are the differences from the request.
    """

    spec: OpSpec
    notes: tuple[str, ...] = ()
    aten: str = ""
    origin: str = ""  # where the declaration comes from, for the docstring of spec.py
    shape: tuple[int, ...] = SHAPE  # of an input, for the first cases
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)  # values that it takes
    guessed: tuple[str, ...] = ()  # attributes with an unknown default
    seen: Model | None = None  # its use in the model that it was declared from
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of outputs that have no input's shape

    @property
    def first_input(self) -> Input:
        """The first input that every call has: a required one, or a variadic one that counts outputs."""
        return sure_inputs(self.spec)[0]

    def source(self, output: Output) -> Input | None:
        """Return the input that a placeholder copies to `output`, or None if it writes zeros."""
        name = output.shape.input if isinstance(output.shape, SameAs) else ""
        return next((i for i in self.spec.inputs if i.name == name and i.type == output.type), None)


def shape_rule(inputs: Iterable[Input], declared: str) -> SameAs:
    """Return the shape of a placeholder's output: that of the first required input of its type, else of any."""
    required = [i for i in inputs if is_required(i)] or [*inputs]
    return SameAs(input=next((i for i in required if i.type == declared), required[0]).name)


def snake_case(name: str) -> str:
    """Return ``scale_shift`` for ``ScaleShift``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower().strip("_")


def operator_name(name: str, used: Set[str] = frozenset()) -> str:
    """Return ``scale_shift`` for ``ScaleShift``, and ``signed_op`` for a name that no operator can have: a keyword, one
    that is reserved, or one that its generated code uses."""
    found = re.sub(r"[^a-z0-9]+", "_", snake_case(name))[:90].strip("_")
    found = found if found[:1].isalpha() else f"op_{found}".strip("_")
    return found if is_variable(found) and not is_reserved(found) and found not in used else f"{found}_op"


def is_variable(name: str) -> bool:
    """Return whether a name can be that of a variable in C++ and in Python: an identifier, no keyword and no macro."""
    if name in MACROS or "__" in name or _MACRO.fullmatch(name):
        return False
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and name not in CPP_KEYWORDS


def op_type_of(name: str) -> str:
    """Return ``ScaleShift`` for ``scale_shift``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def unused(name: str, taken: Collection[str]) -> str:
    """Return `name`, with a number appended if it is taken."""
    return next(n for n in chain([name], (f"{name}_{k}" for k in count(2))) if n not in taken)


def domain_owner(domain: str) -> str | None:
    """Return "ONNX" or "ONNX Runtime" if they own `domain`, else None."""
    if domain in ONNX_DOMAINS:
        return "ONNX"
    return "ONNX Runtime" if any(f"{domain}.".startswith(f"{own}.") for own in _OF_ONNX_RUNTIME) else None


def is_reserved(name: str) -> bool:
    """Return whether a declaration reserves this name: no operator, input or attribute may have it."""
    return any(name in names for names in validation.RESERVED.values())


def finished(draft: Draft) -> Draft:
    """Return the draft with a tolerance for each dtype of an output. Raises UsageError with all its mistakes."""
    dtypes = [d for o in draft.spec.outputs for d in draft.spec.types.get(o.type) or (dtype_of(o.type, {}),)]
    spec = replace(draft.spec, tolerances={"custom": {d: _LIMITS.get(d, _EXACT) for d in dict.fromkeys(dtypes)}})
    mistakes = [f"  {m.field}: {m.text}" for m in validation.declaration(spec, spec.name)]
    if mistakes:
        raise UsageError(f"{spec.name} cannot be declared so:\n" + "\n".join(mistakes))
    return replace(draft, spec=spec)
