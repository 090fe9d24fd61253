"""The Python of the fake kernel for sizes: the shapes of outputs, and the checks of the compiled binding."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opmatrix.codegen.checks import shape_text
from opmatrix.signature.signature import torch_name, torch_variable
from opmatrix.sizes.checks import (
    AxisCheck,
    ItemCheck,
    OptionalCheck,
    SameFurther,
    SameShape,
    ShapeCheck,
    SizeCheck,
    TieCheck,
    owner,
    size_checks,
)
from opmatrix.sizes.expressions import FURTHER, Term
from opmatrix.sizes.rules import (
    around,
    axes,
    code,
    divisors,
    further_input,
    has_further,
    kernel_dims,
    kernel_names,
    least,
)
from opmatrix.spec import Dims, FromKernel, Input, OpSpec, Output, SameAs

ITEM = "item"  # one tensor of a variadic input


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The condition of a wrong input and its message; `of` is the variadic input whose tensors it checks, or None."""

    condition: str
    message: str
    of: str | None


def fault(part: Input, condition: str, message: str, *, also: Sequence[Input] = ()) -> Refusal:
    """Return the check of an input, with the condition that an optional one is present, and so are those of `also`."""
    if present := [i.name for i in (part, *also) if i.optional]:
        bare = " or " not in condition
        condition = " and ".join(f"{name} is not None" for name in present) + (
            f" and {condition if bare else f'({condition})'}"
        )
    return Refusal(condition=condition, message=message, of=part.name if part.variadic else None)


def first_of(part: Input) -> str:
    """Return the variable of an input that every call has, of the first tensor of a variadic one."""
    return f"{part.name}[0]" if part.variadic else part.name


@dataclass(frozen=True, kw_only=True)
class _Code:
    """The Python of size expressions; `tensor` is the variable of a variadic input's tensor."""

    spec: OpSpec
    tensor: str = ITEM

    def __call__(self, expression: str | int) -> str:
        return ast.unparse(code(self.spec, expression, self.term))

    def name(self, name: str) -> str:
        variadic = any(i.name == name and i.variadic for i in self.spec.inputs)
        return self.tensor if variadic else name

    def attribute(self, name: str) -> str:
        return next((torch_variable(self.spec, a) for a in self.spec.attributes if a.name == name), name)

    def term(self, term: Term) -> str:
        match term.kind:
            case "product":
                return f"math.prod({self.further()})"
            case "rank":
                return f"{self.name(term.of)}.dim()"
            case "size":
                at = self.attribute(term.at) if isinstance(term.at, str) else term.at
                return f"{self.name(term.of)}.shape[{at}]"
        return self.attribute(term.of) + (f"[{term.at}]" if term.kind == "item" else "")

    def further(self) -> str:
        part = further_input(self.spec)
        assert part is not None
        return self.further_of(part)

    def further_of(self, part: Input) -> str:
        front, back = around(part)
        return f"{self.name(part.name)}.shape[{front or ''}:{-back if back else ''}]"


def output_shape(spec: OpSpec, output: Output, like: Input) -> str:
    """Return the expression of an output's shape."""
    python = _Code(spec=spec)
    match output.shape:
        case SameAs(replace=replace) if not replace:
            return f"{like.name}.shape"
        case SameAs(replace=replace) | FromKernel(input=str(), replace=replace):
            # int() fixes an axis that torch.compile(dynamic=True) takes for a symbol, which no dict can have as a key.
            axes = [f"int({python.attribute(key)})" if isinstance(key, str) else key for key in replace]
            decided = {name: new_size(name) for name in kernel_names(spec, output.shape)}
            sizes = [None if dim is None else decided.get(str(dim)) or python(dim) for dim in replace.values()]
            changed = [f"{axis}: {size}" for axis, size in zip(axes, sizes, strict=True)]
            return f"with_replaced({like.name}.shape, {{{', '.join(changed)}}})"
        case Dims(dims=dims):
            return python_tuple([f"*{python.further()}" if dim == FURTHER else python(dim) for dim in dims])
        case FromKernel(dims=None, rank=rank):
            return python_tuple(["new_size()"] * (rank or 0))
        case FromKernel(dims=dims) as rule:
            known = zip(dims or (), kernel_dims(spec, rule), strict=True)
            return python_tuple([new_size(name) if dim is None else python(dim) for name, dim in known])
    raise ValueError(f"output {output.name!r} has no shape rule")


def new_size(name: str | int) -> str:
    """Return the variable of a size that the kernel decides."""
    return f"new_{name}"


def new_sizes(spec: OpSpec) -> list[str]:
    """Return the variables of the sizes that the kernel decides."""
    return [*dict.fromkeys(new_size(name) for output in spec.outputs for name in kernel_names(spec, output.shape))]


def python_tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def shape_faults(spec: OpSpec) -> Iterator[Refusal]:
    """Yield the shape checks of each input, with the messages of the compiled binding."""
    for attribute in divisors(spec):
        name, many = torch_name(attribute), attribute.kind == "ints"
        variable = torch_variable(spec, attribute)
        wrong = f"min({variable}, default=1)" if many else variable
        message = f"{name} must {'each ' * many}be at least {least(attribute):g}, got {{{wrong}}}"
        yield Refusal(condition=f"{wrong} < {least(attribute):g}", message=message, of=None)
    yield from (_fault(spec, check) for check in size_checks(spec))


def _fault(spec: OpSpec, check: SizeCheck) -> Refusal:
    python = _Code(spec=spec)
    if isinstance(check, AxisCheck):
        return _axis_fault(check, python)
    match check:
        case ItemCheck(attribute=name, count=count, exactly=exactly):
            found = f"len({python.attribute(name)})"
            message = f"{name} must have {check}, got {{{found}}}"
            return Refusal(condition=f"{found} {'!=' if exactly else '<'} {count}", message=message, of=None)
        case SameShape(given=given, other=other):
            found = python.name(given.name)
            shapes = f"{{tuple({other}.shape)}}, got {{tuple({found}.shape)}}"
            message = f"{given.name} must have the shape of {other}, {shapes}"
            return fault(given, f"{found}.shape != {other}.shape", message)
        case SameFurther(given=given, other=other):
            there = python.further_of(other)
            message = _message(given, python, [f"... = {{tuple({there})}} as in {other.name}"])
            return fault(given, f"{python.further_of(given)} != {there}", message)
        case ShapeCheck(given=given):
            origins = _origins(spec, given, check.others, python)
            return fault(given, " or ".join(_conditions(check, python)), _message(given, python, origins))
        case OptionalCheck(given=given, at=at, dim=dim, names=names, others=others):
            message = _message(given, python, _origins(spec, given, names, python))
            return fault(given, f"{python.name(given.name)}.shape[{at}] != {python(dim)}", message, also=others)
        case TieCheck(given=given, at=at, name=name, other=other, axis=axis):
            there = f"{other.name}[0]" if other is given else python.name(other.name)
            origin = f"{name} = {{{there}.shape[{axis}]}} as in {other.name}"
            condition = f"{python.name(given.name)}.shape[{at}] != {there}.shape[{axis}]"
            also = () if other is given else (other,)
            return fault(given, condition, _message(given, python, [origin]), also=also)


def _axis_fault(check: AxisCheck, python: _Code) -> Refusal:
    name, at = check.given.name, check.at
    rank = f"{name}.dim()"
    if isinstance(at, int):
        condition = f"{rank} {f'<= {at}' if at >= 0 else f'< {-at}'}"
        return Refusal(
            condition=condition, message=f"{name} must have an axis {at}, got {{tuple({name}.shape)}}", of=None
        )
    axis = python.attribute(at)
    message = f"{at} must be an axis of {name}, which has {{{rank}}} axes, got {{{axis}}}"
    return Refusal(condition=f"not -{rank} <= {axis} < {rank}", message=message, of=None)


def _conditions(check: ShapeCheck, python: _Code) -> Iterator[str]:
    given, found = check.given, python.name(check.given.name)
    if check.rank:
        yield f"{found}.dim() {'<' if has_further(given) else '!='} {len(axes(given))}"
    if check.rank_name is not None:
        yield f"{found}.dim() != {python(check.rank_name)}"
    yield from (f"{python(name)} < 0" for name in check.positive)
    for at, dim in check.sizes:
        yield f"{found}.shape[{python.attribute(at) if isinstance(at, str) else at}] != {python(dim)}"


def _origins(spec: OpSpec, given: Input, used: Sequence[Term], python: _Code) -> list[str]:
    """Return name, value and input of what sizes are computed from, without what is shown anyway."""
    return [
        f"{term.key} = {{{python(term.key)}}}" + (f" as in {source}" if source else "")
        for term in used
        if (source := owner(spec, term)) != given.name
    ]


def _message(given: Input, python: _Code, origins: Sequence[str]) -> str:
    origin = " with " + " and ".join(origins) if origins else ""
    return f"{given.name} must have {shape_text(given)}{origin}, got {{tuple({python.name(given.name)}.shape)}}"
