"""An operator that is about to be written: its declaration, and what its kernel and reference can say so far. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from opmatrix.declaration import validation
from opmatrix.declaration.torch_signature import dtype_of
from opmatrix.errors import UsageError
from opmatrix.spec import AttributeKind, AttributeValue, DType, Input, Model, OpSpec, Output, SameAs, Tolerance

FLOATS: tuple[DType, ...] = ("float32", "float64")
# Of results that are rounded a few times; the README's table is to say why another one holds.
LIMITS: Mapping[DType, Tolerance] = {
    "float32": Tolerance(rtol=1e-6, atol=1e-6),
    "float64": Tolerance(rtol=1e-14, atol=1e-14),
}
EXACT = Tolerance(rtol=0.0, atol=0.0)
SHAPE = (3, 4)
# What a case gives for an attribute without a default, and what a second model gives for one with any.
VALUES: Mapping[AttributeKind, tuple[AttributeValue, AttributeValue]] = {
    "float": (0.5, -1.75), "int": (1, 2), "bool": (True, False), "string": ("none", "none"),
    "floats": ((0.5, 2.0), (-1.75,)), "ints": ((0, 1), (1,)),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Formula:
    """A function of one number: in C++ of `value`, in NumPy of `exact`, a longdouble.

    `mean` and `deviation` are of random numbers for which it is defined: opcheck fails where an output is NaN.
    """

    cpp: str
    numpy: str
    mean: float = 0.0
    deviation: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Draft:
    """An operator that is about to be written.

    `formula` is what it computes, where that is known. Without it kernel and reference copy an input, unless `aten`
    names torch's own operator: the reference then refuses, since what torch computes is known, and is no copy.
    `examples` are shapes that it is known to take; `notes` what differs from what was asked for.
    """

    spec: OpSpec
    notes: tuple[str, ...] = ()
    formula: Formula | None = None
    aten: str = ""
    origin: str = ""  # where the declaration comes from, for the first line of spec.py
    examples: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)  # values that it is known to take
    guessed: tuple[str, ...] = ()  # attributes whose default nobody has told
    seen: Model | None = None  # what it was seen with

    @property
    def copies(self) -> bool:
        """Whether kernel and reference are the placeholder that copies."""
        return self.formula is None and not self.aten

    @property
    def first(self) -> Input:
        """The first required input."""
        return next(i for i in self.spec.inputs if is_required(i))

    def source(self, output: Output) -> Input | None:
        """Return the input that a placeholder copies to `output`, or None, for zeros."""
        if not isinstance(output.shape, SameAs):
            return None
        shaped = output.shape.input
        return next((i for i in self.spec.inputs if i.name == shaped and i.type == output.type), None)


def is_required(part: Input) -> bool:
    return not part.optional and not part.variadic


def shape_rule(inputs: Iterable[Input], declared: str) -> SameAs:
    """Return the shape that a placeholder gives an output: that of the input it can copy, else of the first."""
    required = [i for i in inputs if is_required(i)]
    return SameAs(input=next((i for i in required if i.type == declared), required[0]).name)


def tolerances(types: Mapping[str, tuple[DType, ...]], outputs: Iterable[Output]) -> dict[DType, Tolerance]:
    """Return a limit for each dtype of an output."""
    dtypes = [d for o in outputs for d in types.get(o.type) or (dtype_of(o.type, {}),)]
    return {d: LIMITS.get(d, EXACT) for d in dict.fromkeys(dtypes)}


def operator_name(name: str) -> str:
    """Return the folder's name for ``ScaleShift`` or ``scale_shift``."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return parted.lower().strip("_")


def op_type_of(name: str) -> str:
    """Return ``ScaleShift`` for ``scale_shift``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def fresh(name: str, taken: Collection[str]) -> str:
    """Return `name`, or with a number behind it if it is taken."""
    return next(n for n in (name, *(f"{name}_{k}" for k in range(2, 100))) if n not in taken)


def checked(draft: Draft) -> Draft:
    """Return the draft. Raises UsageError with all that its declaration would be refused for."""
    spec = draft.spec
    mistakes = [f"  {m.field}: {m.text}" for m in validation.declaration(spec, spec.name)]
    if mistakes:
        raise UsageError(f"{spec.name} cannot be declared so:\n" + "\n".join(mistakes))
    return draft
