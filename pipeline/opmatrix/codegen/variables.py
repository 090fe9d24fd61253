"""The variables of the C++ templates for each input, attribute and output: types, names and expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from opmatrix.codegen.checks import Check, limits
from opmatrix.codegen.cpp import CPP_TYPES, literal, quoted
from opmatrix.codegen.size_code import SIZE_FUNCTIONS, SizeCode
from opmatrix.signature.signature import dtype_of, is_copied, onnx_name, torch_arguments, torch_name, torch_variable
from opmatrix.sizes.expressions import FURTHER, subtracts
from opmatrix.sizes.rules import kernel_dims, kernel_names, known_replaced, resolved, shape_inputs
from opmatrix.sizes.variadic import counter, has_own_shapes, reason, sure_inputs
from opmatrix.spec import Attribute, AttributeKind, Dims, DType, FromKernel, Input, OpSpec, Output, SameAs

# The C++ type of a kernel's argument, or of an item of a list.
_ITEMS: Mapping[AttributeKind, str] = {
    "float": "float", "int": "std::int64_t", "bool": "bool", "string": "const char*",
    "floats": "float", "ints": "std::int64_t", "bools": "bool", "strings": "std::string_view",
}  # fmt: skip
# The types that torch passes, where they differ.
_TORCH_ITEMS: Mapping[str, str] = {"float": "double"}


@dataclass(frozen=True, kw_only=True)
class InputPart:
    name: str
    slot: int  # on torch's stack
    kind: Literal["required", "optional", "variadic"]
    dims: bool  # whether its shape is checked
    leader: str | None  # the first input with the same type variable that every call has
    leader_dtype: str  # the expression of its dtype
    allowed: str
    port: str  # of an OrtCustomOp
    ort_class: str  # holds the tensor during a run
    torch_class: str
    torch_sizes: str
    ort_sizes: str
    view: str


@dataclass(frozen=True, kw_only=True)
class AttributePart:
    """How a torch argument becomes a kernel argument: converted from the stack, checked, rounded, `passed`.

    In ONNX Runtime `member` keeps the value. A tensor of the node, which torch does not have, becomes a view.
    """

    name: str
    onnx_name: str
    parameter: str
    kind: str  # the parameter, if it is there
    member: str
    member_value: str
    read: str  # the statement that gets it from a node
    is_list: bool = False
    is_text: bool = False
    is_texts: bool = False  # a list of strings
    is_tensor: bool = False
    torch_name: str = ""
    variable: str = ""  # with what torch gives
    slot: int = -1  # on torch's stack
    given: str | None = None  # of an optional one: the variable that tells whether it is there
    nothing: str = ""  # the variable's value where it is not
    torch_type: str = ""
    convert: str = ""  # from a slot of torch's stack, or an item of its list
    torch_check: Check | None = None
    rounded: str | None = None
    passed: str = ""
    default: str | None = None
    default_items: str | None = None
    ort_check: Check | None = None


def cpp_type(spec: OpSpec, declared: str, types: Mapping[str, DType] | None = None) -> str:
    """Return the C++ type of a declared type: for a type variable its name, or its type under a binding."""
    if declared in spec.types:
        return CPP_TYPES[types[declared]] if types else declared
    return CPP_TYPES[dtype_of(declared, {})]


def dtype_name(name: str) -> str:
    return f"DType::{'boolean' if name == 'bool' else name}"


def input_part(spec: OpSpec, given: Input) -> InputPart:
    kind: Literal["required", "optional", "variadic"] = (
        "variadic" if given.variadic else "optional" if given.optional else "required"
    )
    leaders = [i for i in sure_inputs(spec) if i.type == given.type]
    first = leaders[0] if leaders and given.type in spec.types else None
    leader = first.name if first and (first is not given or given.variadic) else None
    allowed = spec.types.get(given.type) or (given.type,)
    name, cpp_name = given.name, cpp_type(spec, given.type)
    dtype = dtype_name(given.onnx_type) if given.onnx_type else f"dtype_of<{cpp_name}>"
    ort_class = "ort::Values" if given.variadic else "ort::Value"
    if given.onnx_type or is_copied(spec, given.type):  # or a type variable, which may be one that is copied
        one = f"ort::UnpackedValue<{cpp_name}>" if given.onnx_type else f"ort::ValueOf<{cpp_name}>"
        ort_class = f"ort::ValuesOf<{one}>" if given.variadic else one
    views = {"required": "view<{}>()", "optional": "optional_view<{}>()", "variadic": "views<{}>().list()"}
    ort_sizes = {"required": "sizes()", "optional": "optional_sizes()", "variadic": "sizes().list()"}
    return InputPart(
        name=name,
        slot=_slot(spec, given),
        kind=kind,
        dims=given.name in shape_inputs(spec),
        leader=leader,
        leader_dtype=torch_dtype(first) if first else "",
        allowed="{" + ", ".join(map(dtype_name, allowed)) + "}",
        port=dtype if kind == "required" else f"ort::Port({dtype}, INPUT_OUTPUT_{kind.upper()})",
        ort_class=ort_class,
        torch_class={"required": "Input", "optional": "OptionalInput", "variadic": "Inputs"}[kind],
        torch_sizes=f"{name}.sizes()" + ("" if kind == "required" else ".list()"),
        ort_sizes=f"{name}.{ort_sizes[kind]}",
        # The class of an input whose type variable may be copied depends on the variable.
        view=f"{name}.{'template ' if is_copied(spec, given.type) else ''}{views[kind].format(cpp_name)}",
    )


def torch_dtype(part: Input) -> str:
    """Return the expression of the dtype of an input that every call has, of the first tensor of a variadic one."""
    return f"{part.name}.begin()->dtype()" if part.variadic else f"{part.name}.dtype()"


def _slot(spec: OpSpec, given: Input | Attribute) -> int:
    """Return where torch passes an argument, -1 if it does not."""
    return next((n for n, a in enumerate(torch_arguments(spec)) if a.source is given), -1) if spec.torch else -1


def attribute_part(spec: OpSpec, given: Attribute) -> AttributePart:
    kept, onnx = f"{given.name}_", onnx_name(given)
    if given.kind == "tensor":
        element = CPP_TYPES[dtype_of(given.type or "", {})]
        dims = ", ".join("-1" if dim is None else str(dim) for dim in given.dims or ())
        return AttributePart(
            name=given.name, onnx_name=onnx, is_tensor=True, parameter=f"TensorView<const {element}>", kind=element,
            member=f"ort::TensorAttribute<{element}> {kept}", member_value=f"{kept}.view()",
            read=f"{kept}.read(attributes, {quoted(onnx)}, {{{dims}}})",
        )  # fmt: skip
    shown, many, text = torch_name(given), given.kind.endswith("s"), given.kind == "string"
    variable, texts, item = torch_variable(spec, given), given.kind == "strings", _ITEMS[given.kind]
    handed = _TORCH_ITEMS.get(item, item)
    floats = given.kind.startswith("float")
    rounded = None if not floats else f"{given.name}_float" if variable == given.name else given.name
    passed = rounded or variable
    values = given.default if isinstance(given.default, tuple) else None
    listed = None if values is None else ", ".join(literal(float(v) if floats else v, "f") for v in values)  # type: ignore[arg-type]  # of floats
    default, kind = given.default, f"List<{item}>" if many else item
    owner = "Texts" if texts else f"Items<{'char' if text else handed}>"  # of what torch gives
    there = _unused(f"{given.name}_given", spec) if given.optional else None
    ort_there = there and f"{there}_"
    torch_text, ort_text = (f"{name}.begin()" if text else name for name in (variable, kept))
    torch_value, ort_value = (
        f"{name}.list()" if many else f"{name}.begin()" if text else name for name in (passed, kept)
    )
    value = None if default is None or many else literal(float(str(default)) if floats else default, "f")
    get = "ort::get_texts(attributes, " if texts else f"attributes.get_{given.kind}("
    otherwise = value if text and value else "nullptr" if given.optional or default is None else f"&{kept}default"
    return AttributePart(
        name=given.name,
        torch_name=shown,
        onnx_name=onnx,
        variable=variable,
        slot=_slot(spec, given),
        given=there,
        nothing=f"{owner}()" if many or text else f"{handed}()",
        is_list=many,
        is_text=text,
        is_texts=texts,
        parameter=f"std::optional<{kind}>" if given.optional else kind,
        kind=kind,
        torch_type=owner if many or text else handed,
        convert=f"to_{'double' if floats else given.kind.removesuffix('s')}",
        torch_check=limits(spec, given, variable=torch_text, shown=shown, suffix="", there=there),
        rounded=rounded,
        passed=_optional(torch_value, there),
        member=f"{owner.replace(handed, item) if many or text else item} {kept}",
        member_value=_optional(ort_value, ort_there),
        read=f"{kept} = {get}{quoted(onnx)}, {otherwise})",
        default=value,
        default_items=listed,
        ort_check=limits(spec, given, variable=ort_text, shown=onnx, suffix="f", there=ort_there),
    )


def _optional(value: str, there: str | None) -> str:
    """Return the kernel's argument: a value, or where `there` is the name of a bool, an optional one."""
    return value if there is None else f"{there} ? std::optional({value}) : std::nullopt"


def _unused(name: str, spec: OpSpec) -> str:
    """Return a name that no input, attribute and output of an operator has."""
    parts: list[Input | Attribute | Output] = [*spec.inputs, *spec.attributes, *spec.outputs]
    while name in {part.name for part in parts} | {torch_name(a) for a in spec.attributes}:
        name += "_too"
    return name


def kernel_parameters(spec: OpSpec, types: Mapping[str, DType]) -> list[str]:
    """Return the parameters of the kernel for one binding of the type variables."""
    found = []
    for i in spec.inputs:
        view = f"{'OptionalView' if i.optional else 'TensorView'}<const {cpp_type(spec, i.type, types)}>"
        found.append(f"{f'List<{view}>' if i.variadic else view} {i.name}")
    found += [f"{attribute_part(spec, a).parameter} {a.name}" for a in spec.attributes]
    for o in spec.outputs:
        kind = "NewTensor" if isinstance(o.shape, FromKernel) else "OptionalView" if o.optional else "TensorView"
        element = cpp_type(spec, o.type, types)
        found.append(f"{f'List<TensorView<{element}>>' if o.variadic else f'{kind}<{element}>'} {o.name}")
    return found


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
    torch = SizeCode(spec=spec, shape="{}.sizes()".format, attribute=str)
    ort = replace(torch, attribute=lambda a: f"{a}_.list()" if a in lists else f"{a}_")
    numbers, ort_numbers, steps, ort_steps, known, known_sizes = None, None, [], [], None, None
    first = sure_inputs(spec)[0]
    sizes, rank, device = "", "0", f"{first.name}.begin()[0]" if first.variadic else first.name
    dims: Sequence[str | int] = ()
    match shape:
        case SameAs() if has_own_shapes(given):
            pass
        case SameAs(input=owner):
            device, sizes = owner, f"{owner}.sizes()"
            if shape.replace:
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
