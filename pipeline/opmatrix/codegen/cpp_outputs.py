"""The variables of the C++ templates for each output: its type, and the code of its sizes in both bindings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from opmatrix.codegen.cpp import SIZE_FUNCTIONS, SizeCode
from opmatrix.codegen.cpp_variables import cpp_type, dtype_name
from opmatrix.declaration.declared_sizes import kernel_dims, kernel_names, known_replaced
from opmatrix.declaration.size_expressions import FURTHER, subtracts
from opmatrix.declaration.size_rules import resolved
from opmatrix.declaration.torch_signature import is_copied
from opmatrix.declaration.variadic_outputs import counter, has_own_shapes, reason, sure_inputs
from opmatrix.spec import Dims, FromKernel, Input, OpSpec, Output, SameAs


@dataclass(frozen=True, kw_only=True)
class OutputPart:
    """`new` is whether the kernel allocates it; otherwise `sizes` is the expression of its sizes.

    These are made of `numbers`, or by `steps`, statements, where only a call knows its rank. Of an output that the
    kernel allocates, `known_sizes` has a pointer to each size that the binding compares: an array of the pointers
    `known`, or what the steps made.
    """

    name: str
    type: str
    dtype: str
    device: str  # the input on whose device torch allocates it
    new: bool
    ort_dtype: str
    copied: bool  # whether the binding copies what the kernel wrote: strings, int4 and uint4
    ort_class: str  # that of a copied one in ONNX Runtime's binding
    made: str  # the template arguments of ort::NewOutput
    rank: str
    sizes: str
    numbers: list[str] | None
    ort_numbers: list[str] | None  # the same, with attributes as members of the node's class
    steps: list[str]
    ort_steps: list[str]
    known: list[str] | None
    known_sizes: str | None
    falls: bool  # whether one of them can be negative
    optional: bool
    switch: str | None  # the attribute that says whether there is one
    variadic: str | None = None  # the input or the attribute that says how many tensors it has
    count: str = ""  # in torch: the sizes of each of them, or their number and the sizes of all
    ort_count: str = ""  # the same in a run of ONNX Runtime
    ort_wanted: str = ""  # their number when a session is made
    reason: str = ""  # what says how many there are, in words
    filled: str = ""  # the condition that there is one, where no limit of an attribute says so
    what: str = ""  # of what there must be one

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
    cpp_name = cpp_type(spec, given.type)
    shape, name = given.shape, given.name
    lists = {a.name for a in spec.attributes if a.kind == "ints"}
    torch = SizeCode(spec=spec, shape=_sizes_of, attribute=str)
    ort = SizeCode(spec=spec, shape=_sizes_of, attribute=lambda a: f"{a}_.list()" if a in lists else f"{a}_")
    numbers, ort_numbers, steps, ort_steps, known, known_sizes = None, None, [], [], None, None
    first = sure_inputs(spec)[0]
    sizes, rank, device = "", "0", f"{first.name}.begin()[0]" if first.variadic else first.name
    dims: Sequence[str | int] = ()
    match shape:
        case SameAs() if has_own_shapes(given):
            pass
        case SameAs(input=owner, replace=replace):
            device, sizes = owner, f"{owner}.sizes()"
            if replace:
                dims = known_replaced(spec, shape)
                steps, ort_steps = ([*replaced(shape, name, code, of=sizes)] for code in (torch, ort))
        case Dims(dims=dims) if FURTHER in dims:
            dims = [dim for dim in dims if dim != FURTHER]
            steps, ort_steps = ([*added(shape, name, code)] for code in (torch, ort))
        case Dims(dims=dims):
            numbers, ort_numbers = ([code(dim) for dim in dims] for code in (torch, ort))
            sizes = f"Sizes{{{name}_sizes, {len(numbers)}}}" if numbers else "Sizes{}"
        case FromKernel(input=str(owner)):
            device, of, made = owner, f"{owner}.sizes()", "KernelSizes"
            dims = known_replaced(spec, shape)
            decided = {size: f"Decided{{&kernel_{size}}}" for size in kernel_names(spec, shape)}
            steps, ort_steps = (
                [*replaced(shape, name, code, of=of, made=made, decided=decided)] for code in (torch, ort)
            )
            rank, known_sizes = f"{name}_sizes.rank()", f"{name}_sizes.known()"
        case FromKernel(dims=None, rank=rank_only):
            rank, dims = str(rank_only), []
        case FromKernel(dims=given_dims):
            of_call = kernel_dims(spec, shape)
            rank, dims = str(len(of_call)), [dim for dim in of_call if dim is not None]
            known_sizes = f"{name}_known" if of_call else None
            known = [
                f"&kernel_{declared}" if dim is None else f"&{name}_sizes[{n}]"
                for n, (dim, declared) in enumerate(zip(of_call, given_dims or (), strict=True))
            ]
            if dims:
                numbers, ort_numbers = (["0" if dim is None else code(dim) for dim in of_call] for code in (torch, ort))
                sizes = f"Sizes{{{name}_sizes, {rank}}}"
    dtype, packed = f"dtype_of<{cpp_name}>", given.onnx_type is not None
    ort_class = f"ort::{'Packed' if packed else ''}Output<{cpp_name}>"
    return OutputPart(
        name=name, type=cpp_name, dtype=dtype, device=device,
        ort_dtype=dtype_name(given.onnx_type) if given.onnx_type else dtype,
        new=isinstance(shape, FromKernel), copied=packed or is_copied(spec, given.type),
        ort_class=ort_class, made=f"{cpp_name}, {ort_class}" if packed else cpp_name,
        rank=rank, sizes=f"{name}_sizes.sizes()" if steps else sizes,
        numbers=numbers, ort_numbers=ort_numbers, steps=steps, ort_steps=ort_steps, known=known,
        known_sizes=known_sizes,
        optional=bool(given.optional), switch=given.optional if isinstance(given.optional, str) else None,
        falls=any(subtracts(resolved(spec, dim)) for dim in dims), **_counted(spec, given, steps, sizes, device),
    )  # fmt: skip


def _counted(spec: OpSpec, given: Output, steps: Sequence[str], sizes: str, device: str) -> dict[str, str]:
    """Return the fields of an output that has any number of tensors."""
    part = counter(spec)
    if part is None or not given.variadic:
        return {}
    name, sizes = part.name, f"{given.name}_sizes.sizes()" if steps else sizes
    if isinstance(part, Input):
        count = f"{name}.count()"
        found = {"ort_wanted": f"ort::count_variadic(attributes, {spec.inputs.index(part)})"}
        found |= {"filled": f"{name}.count() > 0", "what": "tensor"}
    elif part.kind == "ints":
        count = f"{name}.size()"
        found = {"ort_wanted": f"{name}_.list().size()", "filled": f"{name}.size() > 0", "what": "item"}
    else:
        found, count = {"ort_wanted": f"{name}_"}, name
    own = has_own_shapes(given)
    of_node = f"{name}.sizes().list().size()" if isinstance(part, Input) else found["ort_wanted"]
    return found | {
        "variadic": name,
        "count": name if own else f"{device}, {count}, {sizes}",
        "ort_count": f"{name}.sizes().list()" if own else f"{of_node}, {sizes}",
        "reason": reason(spec),
    }


def _sizes_of(name: str) -> str:
    return f"{name}.sizes()"


def added(rule: Dims, name: str, code: SizeCode, *, made: str = "AnyRank") -> Iterator[str]:
    """Yield the statements that compute the sizes of an output, among them those of "...", as a `made`."""
    yield f"{made} {name}_sizes"
    for dim in rule.dims:
        yield f"{name}_sizes.add({code.further() if dim == FURTHER else code(dim)})"


def replaced(
    rule: SameAs | FromKernel,
    name: str,
    code: SizeCode,
    *,
    of: str,
    made: str = "AnyRank",
    decided: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield the statements that compute the sizes `of` an input with some of them replaced or removed, as a `made`;
    `decided` has the code of those that the kernel decides."""
    yield f"{made} {name}_sizes({of})"
    for key, dim in rule.replace.items():
        axis = code.attribute(key) if isinstance(key, str) else str(key)
        size = f"{made}::kRemoved" if dim is None else decided.get(str(dim)) or code(dim)
        yield f"{name}_sizes.replace({axis}, {size})"
    if None in rule.replace.values():
        yield f"{name}_sizes.drop_removed()"


def decided_sizes(spec: OpSpec) -> list[str]:
    """Return the names of sizes that only the kernel knows, of all outputs."""
    return [*dict.fromkeys(name for output in spec.outputs for name in kernel_names(spec, output.shape))]
