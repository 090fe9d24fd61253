"""The variables of the C++ templates for each output: its type, and the code of its sizes in both bindings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opmatrix.codegen.cpp import SIZE_FUNCTIONS, SizeCode
from opmatrix.codegen.cpp_variables import cpp_type
from opmatrix.declaration.declared_sizes import kernel_axes, kernel_dims, kernel_names
from opmatrix.declaration.size_expressions import FURTHER, subtracts
from opmatrix.declaration.size_rules import resolved
from opmatrix.declaration.torch_signature import is_required
from opmatrix.spec import Dims, FromKernel, OpSpec, Output, SameAs


@dataclass(frozen=True, kw_only=True)
class OutputPart:
    """`new` is whether the kernel allocates it; otherwise `sizes` is the expression of its sizes.

    These are made of `numbers`, or by `steps`, statements, where only a call knows its rank. Of an output that the
    kernel allocates, `known` has a pointer to each size that the binding compares.
    """

    name: str
    type: str
    dtype: str
    device: str  # the input on whose device torch allocates it
    new: bool
    text: bool  # whether it may be of strings
    rank: int
    sizes: str
    numbers: list[str] | None
    ort_numbers: list[str] | None  # the same, with attributes as members of the node's class
    steps: list[str]
    ort_steps: list[str]
    known: list[str] | None
    falls: bool  # whether one of them can be negative
    optional: bool
    switch: str | None  # the attribute that says whether there is one

    @property
    def wanted(self) -> str:
        """The variable that says whether the kernel computes it."""
        return f"wants_{self.name}"

    @property
    def needs_sizes(self) -> bool:
        """Whether its code uses sizes.h."""
        code = " ".join([*(self.numbers or ()), *self.steps])
        return self.falls or any(function in code for function in SIZE_FUNCTIONS)


def output_part(spec: OpSpec, given: Output) -> OutputPart:
    required = {i.name: n for n, i in enumerate(spec.inputs) if is_required(i)}
    cpp_name = cpp_type(spec, given.type)
    shape, name = given.shape, given.name
    lists = {a.name for a in spec.attributes if a.kind == "ints"}
    torch = SizeCode(spec=spec, shape=_sizes_of, attribute=str)
    ort = SizeCode(spec=spec, shape=_sizes_of, attribute=lambda a: f"{a}_.list()" if a in lists else f"{a}_")
    numbers, ort_numbers, steps, ort_steps, known = None, None, [], [], None
    sizes, rank, device = "", 0, next(iter(required))
    dims: Sequence[str | int] = ()
    match shape:
        case SameAs(input=owner, replace=replace):
            device, sizes = owner, f"{owner}.sizes()"
            if replace:
                dims = [dim for dim in replace.values() if dim is not None]
                steps, ort_steps = ([*replaced(shape, name, code, of=sizes)] for code in (torch, ort))
        case Dims(dims=dims) if FURTHER in dims:
            dims = [dim for dim in dims if dim != FURTHER]
            steps, ort_steps = ([*added(shape, name, code)] for code in (torch, ort))
        case Dims(dims=dims):
            numbers, ort_numbers = ([code(dim) for dim in dims] for code in (torch, ort))
            sizes = f"Sizes{{{name}_sizes, {len(numbers)}}}" if numbers else "Sizes{}"
        case FromKernel(rank=rank_only):
            rank, dims = rank_only or 0, []
            if shape.dims is not None:
                rank, dims = len(shape.dims), [dim for dim in kernel_dims(spec, shape) if dim is not None]
                decided = dict(kernel_axes(spec, given))
                known = [f"&kernel_{decided[n]}" if n in decided else f"&{name}_sizes[{n}]" for n in range(rank)]
                if dims:
                    numbers, ort_numbers = (
                        ["0" if dim is None else code(dim) for dim in kernel_dims(spec, shape)] for code in (torch, ort)
                    )
                    sizes = f"Sizes{{{name}_sizes, {rank}}}"
    return OutputPart(
        name=name, type=cpp_name, dtype=f"dtype_of<{cpp_name}>", device=device,
        new=isinstance(shape, FromKernel), text="string" in spec.types.get(given.type, (given.type,)),
        rank=rank, sizes=f"{name}_sizes.sizes()" if steps else sizes,
        numbers=numbers, ort_numbers=ort_numbers, steps=steps, ort_steps=ort_steps, known=known,
        optional=bool(given.optional), switch=given.optional if isinstance(given.optional, str) else None,
        falls=any(subtracts(resolved(spec, dim)) for dim in dims),
    )  # fmt: skip


def _sizes_of(name: str) -> str:
    return f"{name}.sizes()"


def added(rule: Dims, name: str, code: SizeCode, *, made: str = "AnyRank") -> Iterator[str]:
    """Yield the statements that compute the sizes of an output, among them those of "...", as a `made`."""
    yield f"{made} {name}_sizes"
    for dim in rule.dims:
        yield f"{name}_sizes.add({code.further() if dim == FURTHER else code(dim)})"


def replaced(rule: SameAs, name: str, code: SizeCode, *, of: str, made: str = "AnyRank") -> Iterator[str]:
    """Yield the statements that compute the sizes `of` an input with some of them replaced or removed, as a `made`."""
    yield f"{made} {name}_sizes({of})"
    for key, dim in rule.replace.items():
        axis = code.attribute(key) if isinstance(key, str) else str(key)
        yield f"{name}_sizes.replace({axis}, {f'{made}::kRemoved' if dim is None else code(dim)})"
    if None in rule.replace.values():
        yield f"{name}_sizes.drop_removed()"


def decided_sizes(spec: OpSpec) -> list[str]:
    """Return the names of sizes that only the kernel knows, of all outputs."""
    rules = [o.shape for o in spec.outputs if isinstance(o.shape, FromKernel)]
    return [*dict.fromkeys(name for rule in rules for name in kernel_names(spec, rule))]
