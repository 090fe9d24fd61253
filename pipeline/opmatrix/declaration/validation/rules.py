"""Find mistakes in the value rules of inputs, in attributes, and in a declaration with `OpSpec.elementwise`, which
promises one shape for all inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from opmatrix.declaration.validation.attribute_values import int_limits, value_mistake
from opmatrix.declaration.validation.fields import Mistake, by_path, not_one_of
from opmatrix.declaration.validation.sizes import expression
from opmatrix.project.dtypes import DTYPES, FACTS, FLOATS
from opmatrix.signature.signature import allowed_dtypes, has_kernel, has_torch_library
from opmatrix.sizes.expressions import FURTHER
from opmatrix.sizes.rules import declared_sizes, fixed_rank, leader
from opmatrix.sizes.values import ruled_inputs, usable_attributes
from opmatrix.spec import Attribute, DType, Input, OpSpec, Output, SameAs, ValueRule

VARIABLE = "common_format"  # of generated code
RANKS = (4, 5)  # of torch's memory formats channels_last and channels_last_3d
REMEDY = "or remove elementwise=True"


def elementwise_mistakes(spec: OpSpec) -> Iterator[Mistake]:
    """Yield the mistakes of a declaration that has no others."""
    if not has_torch_library(spec):
        why = "it has no kernel of its own"
        if spec.torch is None:
            why = "torch=None"
        elif spec.torch.overrides:
            why = "torch has the kernel"
        elif spec.torch.python:
            why = f"ops/{spec.name}/torch_op.py defines the operator"
        yield Mistake("elementwise", f"found True, allowed: False, because {why}: only a generated binding gets "
                      "tensors of torch that are not contiguous. Remove elementwise=True")  # fmt: skip
        return
    first = spec.inputs[0]
    found = [(path, _wrong_input(spec, part)) for path, part in by_path("inputs", spec.inputs)]
    found += [(path, _wrong_output(part)) for path, part in by_path("outputs", spec.outputs)]
    yield from (Mistake(path, why) for path, why in found if why)
    if (rank := fixed_rank(first)) is not None and rank not in RANKS:
        yield Mistake("elementwise", f"found True, allowed: False, because {first.name!r} has rank {rank}, and "
                      "torch's memory formats channels_last and channels_last_3d have rank 4 and 5: it would change "
                      "nothing. Remove elementwise=True")  # fmt: skip
    if VARIABLE in {part.name for parts in (spec.inputs, spec.attributes, spec.outputs) for part in parts}:
        yield Mistake(f"{VARIABLE!r}", "means something else in the generated code of an operator with "
                      "elementwise=True; choose another name")  # fmt: skip


def _wrong_input(spec: OpSpec, part: Input) -> str:
    first = spec.inputs[0]
    if part.optional or part.variadic:
        field = "optional" if part.optional else "variadic"
        return f"{part.name!r} is {field}, allowed with elementwise=True: required tensors. Declare it so, {REMEDY}"
    if part.values is not None:
        return (f"{part.name!r} has values={part.values!r}, which the binding checks along its axes, allowed with "
                f"elementwise=True: None. Check them in the kernel, {REMEDY}")  # fmt: skip
    if _shape(spec, part) != _shape(spec, first):
        return (f"{part.name!r} may have another shape than {first.name!r}, and elementwise=True allows one shape. "
                f"Declare same_as={first.name!r}, {REMEDY}")  # fmt: skip
    return ""


def _wrong_output(output: Output) -> str:
    if output.variadic or isinstance(output.optional, str):
        field = "variadic" if output.variadic else "optional"
        return (f"{output.name!r} has {field}={getattr(output, field)!r}, allowed with elementwise=True: one tensor of "
                f"the inputs' shape. Remove {field}, {REMEDY}")  # fmt: skip
    if not isinstance(output.shape, SameAs) or output.shape.replace:
        return (f"{output.name!r} may have another shape than the inputs, allowed with elementwise=True: "
                f"SameAs(input=...) without replace. Write it, {REMEDY}")  # fmt: skip
    return ""


def _shape(spec: OpSpec, part: Input) -> tuple[str | int, ...]:
    """Return what the declaration fixes of a shape. Two inputs for which it is equal always have one shape."""
    dims = declared_sizes(spec, part)
    return (*dims, leader(spec, part)) if FURTHER in dims else (*dims,)


_LIMITS = ("minimum", "maximum")
_ROWS = ("sorted", "unique", "spans")


def value_rules(spec: OpSpec) -> Iterator[Mistake]:
    """Yield the mistakes of rules whose field types are correct."""
    for part, rule in ruled_inputs(spec):
        path = f"inputs[{spec.inputs.index(part)}].values"
        dtypes = allowed_dtypes(spec, part.type)
        if any(dtype not in DTYPES for dtype in dtypes):
            continue  # an unknown type is a mistake of its own
        if not has_kernel(spec):
            yield Mistake(path, "is set for an operator without a kernel of its own, so that nothing checks it; "
                          "leave it out")  # fmt: skip
        if rule == ValueRule(checked_by=rule.checked_by):
            yield Mistake(path, "has no rule; give it a limit, or leave it out")
        if {"bool", "string"} & {*dtypes}:
            if used := [f for f in (*_LIMITS, "index_into", "allowed", "finite", *_ROWS) if _has(rule, f)]:
                yield Mistake(f"{path}.{used[0]}", f"is set for {part.type!r} ({', '.join(dtypes)}), allowed: for "
                              "numbers; of a bool only non_empty")  # fmt: skip
            continue
        yield from _choice(rule, path)
        yield from _numbers(rule, dtypes, path)
        yield from _expressions(spec, part, rule, dtypes, path)
        yield from _last_axis(part, rule, path)
        yield from _elements(part, rule, path)


def _has(rule: ValueRule, field: str) -> bool:
    value = getattr(rule, field)
    return value is not None and value is not False  # a limit of 0 is one


def _choice(rule: ValueRule, path: str) -> Iterator[Mistake]:
    """Yield what cannot stand side by side."""
    limited = [field for field in _LIMITS if _has(rule, field)]
    if rule.index_into is not None and limited:
        yield Mistake(path, f"found index_into and {' and '.join(limited)}, allowed: one of both; an index is from 0 "
                      "to the size - 1")  # fmt: skip
    if rule.allowed is not None and (given := [*(["index_into"] if rule.index_into is not None else []), *limited]):
        yield Mistake(path, f"found allowed and {' and '.join(given)}, allowed: one of both")
    if rule.negative and rule.index_into is None:
        yield Mistake(f"{path}.negative", "is set without index_into, whose indices it would count from the end too; "
                      "write a minimum")  # fmt: skip


def _numbers(rule: ValueRule, dtypes: Sequence[str], path: str) -> Iterator[Mistake]:
    """Yield numbers that an input's dtypes cannot represent, and limits that leave no value."""
    whole = [d for d in dtypes if d not in FLOATS]
    if rule.finite and len(whole) == len(dtypes):
        yield Mistake(f"{path}.finite", f"is set for {', '.join(whole)}, which have only finite values; leave it out")
    if rule.index_into is not None and len(whole) < len(dtypes):
        floats = ", ".join(d for d in dtypes if d in FLOATS)
        yield Mistake(f"{path}.index_into", f"is set for {floats}, allowed: for integers")
    if rule.negative and any(d.startswith("uint") for d in dtypes):
        yield Mistake(f"{path}.negative", f"is set for {', '.join(dtypes)}, allowed: for signed integers")
    if rule.allowed == ():
        yield Mistake(f"{path}.allowed", "found none, allowed: at least one value")
    elif rule.allowed and len({*rule.allowed}) < len(rule.allowed):
        yield Mistake(f"{path}.allowed", f"found {rule.allowed}, allowed: each value once")
    given: Mapping[str, Sequence[object]] = {
        "minimum": (rule.minimum,), "maximum": (rule.maximum,), "allowed": rule.allowed or (),
    }  # fmt: skip
    wrong = False
    for field, values in given.items():
        for number in (v for v in values if isinstance(v, int | float)):
            if why := next((w for d in dtypes if (w := _why_not(number, d))), None):
                wrong = True
                yield Mistake(f"{path}.{field}", f"found {number!r}, allowed: {why}")
    if wrong or isinstance(rule.minimum, str) or isinstance(rule.maximum, str):
        return
    if rule.minimum is not None and rule.maximum is not None and rule.minimum > rule.maximum:
        yield Mistake(path, f"found minimum={rule.minimum} and maximum={rule.maximum}, which no value has; allowed: "
                      "a minimum that is not greater")  # fmt: skip


def _why_not(number: float, dtype: str) -> str | None:
    """Return what numbers `dtype` has, if this one is none of them."""
    if dtype in FLOATS:
        # Also what a float32 rounds to infinity, so that all dtypes of a type variable have the same limits.
        greatest = FACTS[dtype].greatest
        return None if abs(number) <= greatest else f"finite numbers that {dtype} has"
    low, high = int_limits(dtype)
    whole = isinstance(number, int) and low <= number <= high
    return None if whole else f"whole numbers from {low} to {high}, for {dtype}"


def _expressions(spec: OpSpec, part: Input, rule: ValueRule, dtypes: Sequence[str], path: str) -> Iterator[Mistake]:
    """Yield expressions of limits that have unknown names, or that are none."""
    attributes = usable_attributes(spec)
    for field in (*_LIMITS, "index_into"):
        given = getattr(rule, field)
        if field == "index_into" and isinstance(given, int) and given < 1:
            yield Mistake(f"{path}.{field}", f"found {given}, allowed: a size from 1 on, which has an index")
        if not isinstance(given, str):
            continue
        if (attribute := attributes.get(given)) is None:
            yield from expression(spec, given, f"{path}.{field}")
        elif attribute.kind == "float" and (field == "index_into" or any(d not in FLOATS for d in dtypes)):
            yield Mistake(f"{path}.{field}", f"found {given!r}, which is a float, allowed: as the limit of an input of "
                          f"floats; {part.name!r} is {', '.join(dtypes)}")  # fmt: skip


def _last_axis(part: Input, rule: ValueRule, path: str) -> Iterator[Mistake]:
    """Yield an order along the last axis that a binding cannot check, and why it has no first and last value that the
    rule says."""
    if rule.unique and rule.sorted is None and rule.checked_by == "binding":
        yield Mistake(f"{path}.unique", "takes a binding more than one pass over the data; allowed: with sorted=, or "
                      "with checked_by=\"kernel\", where the kernel raises the error")  # fmt: skip
    if not rule.spans:
        return
    if lacks := [field for field in ("sorted", *_LIMITS) if not _has(rule, field)]:
        yield Mistake(f"{path}.spans", f"is set without {' and '.join(lacks)}, allowed: with sorted=, minimum= and "
                      "maximum=, which say where the values start and end")  # fmt: skip
        return
    last = part.dims[-1] if part.dims else None
    if last == 0:
        yield Mistake(f"{path}.spans", f"is set for {part.name!r}, whose dims {part.dims} have a last axis of size 0, "
                      "so that no value is the first; leave one out")  # fmt: skip
    numbers = [limit for limit in (rule.minimum, rule.maximum) if not isinstance(limit, str)]
    if last == 1 and len({*numbers}) == 2:
        yield Mistake(f"{path}.spans", f"found {numbers[0]} and {numbers[1]} as the ends of {part.name!r}, whose dims "
                      f"{part.dims} have one element along the last axis; allowed: equal ones")  # fmt: skip


def _elements(part: Input, rule: ValueRule, path: str) -> Iterator[Mistake]:
    """Yield rules that no tensor of the declared shape obeys, or to which its shape gives nothing."""
    if part.dims == () and (rule.sorted or rule.unique):
        field = "sorted" if rule.sorted else "unique"
        yield Mistake(f"{path}.{field}", f"is set for {part.name!r}, which has no axis; it is about neighbours along "
                      "the last axis. Leave it out, or declare an axis in dims")  # fmt: skip
    if rule.non_empty and 0 in (part.dims or ()):
        why = f"is set for {part.name!r}, whose dims {part.dims} have a size of 0; leave one out"
        yield Mistake(f"{path}.non_empty", why)
    count = rule.index_into if isinstance(rule.index_into, int) else len(rule.allowed) if rule.allowed else None
    last = part.dims[-1] if part.dims else None
    most = None if count is None else count * (1 + rule.negative)
    if rule.unique and most is not None and isinstance(last, int) and last > most:
        yield Mistake(f"{path}.unique", f"found {last} values along the last axis, and only {most} are allowed; allow "
                      "more, or leave unique out")  # fmt: skip


# Dtypes of a tensor attribute.
TENSOR_DTYPES: tuple[DType, ...] = (
    "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
)  # fmt: skip
# The fields of an attribute that are numbers in generated C++.
_NUMBERS = ("default", "allowed", "minimum", "maximum")


def attribute_fields(spec: OpSpec) -> Iterator[Mistake]:
    """Yield the mistakes of what attributes can be, besides their names and versions."""
    for path, attribute in by_path("attributes", spec.attributes):
        for field in ("minimum", "maximum"):
            if getattr(attribute, field) is not None and not attribute.kind.startswith(("float", "int")):
                yield Mistake(f"{path}.{field}", f"found on a {attribute.kind}, allowed: on a float or an int")
        yield from _tensor(spec, attribute, path)
        if attribute.optional and attribute.default is not None:
            yield Mistake(f"{path}.default", f"found {attribute.default!r} at an attribute that is optional, allowed: "
                          "None, its default; or optional=False")  # fmt: skip
        if attribute.kind == "strings" and attribute.default is not None and spec.torch and not attribute.torch_only:
            yield Mistake(f"{path}.default", f"found {attribute.default!r}, allowed: none, because torch takes none of "
                          "str[]; or optional=True, whose default is None")  # fmt: skip
        if attribute.allowed is not None and attribute.kind.endswith("s"):
            yield Mistake(f"{path}.allowed", f"found on a list ({attribute.kind}), allowed: on a single value; the "
                          "kernel checks a list")  # fmt: skip
        listed = attribute.default if isinstance(attribute.default, tuple) else (attribute.default,)
        for text in (t for t in (*listed, *(attribute.allowed or ())) if isinstance(t, str)):
            if not text.isprintable():
                allowed = "printable characters; it is written to C++ code"
                yield Mistake(path, f"found the text {text!r}, allowed: {allowed}")
        endless = {field: value for field in _NUMBERS if not _is_finite(value := getattr(attribute, field))}
        for field, value in endless.items():
            allowed = "finite numbers; C++ has no literal for NaN and infinity"
            yield Mistake(f"{path}.{field}", f"found {value!r}, allowed: {allowed}")
        if not endless and attribute.default is not None and (why := value_mistake(attribute, attribute.default)):
            yield Mistake(f"{path}.default", why)


def _tensor(spec: OpSpec, attribute: Attribute, path: str) -> Iterator[Mistake]:
    if attribute.kind != "tensor":
        for field in ("type", "dims"):
            if getattr(attribute, field) is not None:
                yield Mistake(f"{path}.{field}", f"found on a {attribute.kind}, allowed: on a tensor")
        return
    if spec.torch is not None:
        yield Mistake(path, "a tensor, and the operator has a torch schema, which has no such attribute. Make it an "
                      "input, or declare torch=None")  # fmt: skip
    if attribute.type not in TENSOR_DTYPES:
        yield not_one_of(f"{path}.type", attribute.type, TENSOR_DTYPES)
    if attribute.dims is None or any(dim is not None and dim < 0 for dim in attribute.dims):
        allowed = "a size from 0 on, or None for any, for each axis"
        yield Mistake(f"{path}.dims", f"found {attribute.dims}, allowed: {allowed}")
    for field in ("default", "allowed", "optional", "since"):
        if getattr(attribute, field) not in (None, False):
            yield Mistake(f"{path}.{field}", "found on a tensor, allowed: on other kinds; each node has the tensor")


def _is_finite(value: object) -> bool:
    """Return whether neither a value nor an item of it is NaN or infinite."""
    values = value if isinstance(value, tuple) else (value,)
    return all(math.isfinite(v) for v in values if isinstance(v, float))
