"""The variables of the C++ templates for each input, attribute and output: types, names and expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from opmatrix.codegen.checks import Check, limits
from opmatrix.codegen.cpp import CPP_TYPES, literal, quoted
from opmatrix.codegen.size_code import SIZE_FUNCTIONS, SizeCode
from opmatrix.signature.signature import dtype_of, is_copied, onnx_name, torch_arguments, torch_name, torch_variable
from opmatrix.sizes.expressions import FURTHER, subtracts
from opmatrix.sizes.rules import kernel_dims, kernel_names, output_expressions, resolved, shape_inputs
from opmatrix.sizes.variadic import counter, has_own_shapes, reason, sure_inputs
from opmatrix.spec import Attribute, AttributeKind, Dims, DType, FromKernel, Input, OpSpec, Output, SameAs

# The C++ type of a kernel's argument, or of an item of a list.
_ITEMS: Mapping[AttributeKind, str] = {
    "float": "float", "int": "std::int64_t", "bool": "bool", "string": "const char*",
    "floats": "float", "ints": "std::int64_t", "bools": "bool", "strings": "std::string_view",
}  # fmt: skip
# The types that torch passes, where they differ.
_TORCH_ITEMS: Mapping[str, str] = {"float": "double"}


class InputPart:
    def __init__(self, spec: OpSpec, part: Input) -> None:
        self.name, cpp_name = part.name, cpp_type(spec, part.type)
        self.kind = "variadic" if part.variadic else "optional" if part.optional else "required"
        required, copied = self.kind == "required", is_copied(spec, part.type)
        self.slot = _slot(spec, part)  # on torch's stack
        self.dims = part.name in shape_inputs(spec)  # whether its shape is checked
        # The first input with the same type variable that every call has, and the expression of its dtype.
        leaders = [i for i in sure_inputs(spec) if i.type == part.type]
        first = leaders[0] if leaders and part.type in spec.types else None
        self.leader = first.name if first and (first is not part or part.variadic) else None
        self.leader_dtype = torch_dtype(first) if first else ""
        self.allowed = "{" + ", ".join(map(dtype_name, spec.types.get(part.type) or (part.type,))) + "}"
        dtype = dtype_name(part.onnx_type) if part.onnx_type else f"dtype_of<{cpp_name}>"
        # Of an OrtCustomOp.
        self.port = dtype if required else f"ort::Port({dtype}, INPUT_OUTPUT_{self.kind.upper()})"
        self.ort_class = "ort::Values" if part.variadic else "ort::Value"  # holds the tensor during a run
        if part.onnx_type or copied:  # or a type variable, which may be one that is copied
            one = f"ort::UnpackedValue<{cpp_name}>" if part.onnx_type else f"ort::ValueOf<{cpp_name}>"
            self.ort_class = f"ort::ValuesOf<{one}>" if part.variadic else one
        self.torch_class = {"required": "Input", "optional": "OptionalInput", "variadic": "Inputs"}[self.kind]
        self.torch_sizes = f"{part.name}.sizes()" + ("" if required else ".list()")
        sizes = {"required": "sizes()", "optional": "optional_sizes()", "variadic": "sizes().list()"}
        self.ort_sizes = f"{part.name}.{sizes[self.kind]}"
        views = {"required": "view<{}>()", "optional": "optional_view<{}>()", "variadic": "views<{}>().list()"}
        # The class of an input whose type variable may be copied depends on the variable.
        self.view = f"{part.name}.{'template ' if copied else ''}{views[self.kind].format(cpp_name)}"


class AttributePart:
    """How a torch argument becomes a kernel argument: converted from the stack, checked, rounded, `passed`.

    In ONNX Runtime `member` keeps the value. A tensor of the node, which torch does not have, becomes a view: it has
    neither a variable in torch nor a check.
    """

    there: str | None = None  # of an optional one: the variable that tells whether it is there
    default: str | None = None
    default_items: str | None = None
    ort_check: Check | None = None

    def __init__(self, spec: OpSpec, attribute: Attribute) -> None:
        self.name, self.onnx_name, kind = attribute.name, onnx_name(attribute), attribute.kind
        self.is_list, self.is_text, self.is_texts = kind.endswith("s"), kind == "string", kind == "strings"
        self.is_tensor = kind == "tensor"
        if self.is_tensor:
            self._of_tensor(attribute)
            return
        kept, floats, item, default = f"{self.name}_", kind.startswith("float"), _ITEMS[kind], attribute.default
        handed = _TORCH_ITEMS.get(item, item)
        is_owned = self.is_list or self.is_text
        self.kind = f"List<{item}>" if self.is_list else item  # the parameter, if it is there
        self.parameter = f"std::optional<{self.kind}>" if attribute.optional else self.kind
        if attribute.optional:
            self.there = _unused(f"{self.name}_given", spec)
        ort_there = self.there and f"{self.there}_"
        # In torch.
        self.torch_name = torch_name(attribute)
        self.slot = _slot(spec, attribute)  # on torch's stack
        self.variable = torch_variable(spec, attribute)  # with what torch gives
        self.rounded = None
        if floats:
            self.rounded = f"{self.name}_float" if self.variable == self.name else self.name
        owner = "Texts" if self.is_texts else f"Items<{'char' if self.is_text else handed}>"  # of what torch gives
        self.torch_type = owner if is_owned else handed
        self.nothing = f"{owner}()" if is_owned else f"{handed}()"  # the variable's value where it is not there
        # From a slot of torch's stack, or an item of its list.
        self.convert = f"to_{'double' if floats else kind.removesuffix('s')}"
        text = ".begin()" if self.is_text else ""
        inner = ".list()" if self.is_list else text
        self.passed = _optional(f"{self.rounded or self.variable}{inner}", self.there)
        self.torch_check = limits(
            spec, attribute, variable=f"{self.variable}{text}", shown=self.torch_name, suffix="", there=self.there
        )
        # In ONNX Runtime.
        self.member = f"{owner.replace(handed, item) if is_owned else item} {kept}"
        self.member_value = _optional(f"{kept}{inner}", ort_there)
        if isinstance(default, tuple):
            self.default_items = ", ".join(literal(float(v) if floats else v, "f") for v in default)  # type: ignore[arg-type]  # of floats
        if default is not None and not self.is_list:
            self.default = literal(float(str(default)) if floats else default, "f")
        get = "ort::get_texts(attributes, " if self.is_texts else f"attributes.get_{kind}("
        otherwise = "nullptr" if attribute.optional or default is None else f"&{kept}default"
        otherwise = self.default if self.is_text and self.default else otherwise
        self.read = f"{kept} = {get}{quoted(self.onnx_name)}, {otherwise})"  # the statement that gets it from a node
        self.ort_check = limits(
            spec, attribute, variable=f"{kept}{text}", shown=self.onnx_name, suffix="f", there=ort_there
        )

    @property
    def stored(self) -> str:
        """How the program of `bindings.races` reads it from a stored call."""
        if self.is_tensor:
            return f"view<{self.kind}>()"
        if self.is_text or self.is_texts:
            return "text()" if self.is_text else "texts().list()"
        if self.is_list:
            return f"items<{self.kind.removeprefix('List<').removesuffix('>')}>().list()"
        return f"value<{self.kind}>()"

    def _of_tensor(self, attribute: Attribute) -> None:
        self.kind = CPP_TYPES[dtype_of(attribute.type or "", {})]
        self.parameter = f"TensorView<const {self.kind}>"
        self.member, self.member_value = f"ort::TensorAttribute<{self.kind}> {self.name}_", f"{self.name}_.view()"
        dims = ", ".join("-1" if dim is None else str(dim) for dim in attribute.dims or ())
        self.read = f"{self.name}_.read(attributes, {quoted(self.onnx_name)}, {{{dims}}})"


def cpp_type(spec: OpSpec, declared: str, types: Mapping[str, DType] | None = None) -> str:
    """Return the C++ type of a declared type: for a type variable its name, or its type under a binding."""
    if declared in spec.types:
        return CPP_TYPES[types[declared]] if types else declared
    return CPP_TYPES[dtype_of(declared, {})]


def dtype_name(name: str) -> str:
    return f"DType::{'boolean' if name == 'bool' else name}"


def torch_dtype(part: Input) -> str:
    """Return the expression of the dtype of an input that every call has, of the first tensor of a variadic one."""
    return f"{part.name}.begin()->dtype()" if part.variadic else f"{part.name}.dtype()"


def _slot(spec: OpSpec, part: Input | Attribute) -> int:
    """Return where torch passes an argument, -1 if it does not."""
    return next((n for n, a in enumerate(torch_arguments(spec)) if a.source is part), -1) if spec.torch else -1


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
    parameters = []
    for i in spec.inputs:
        view = f"{'OptionalView' if i.optional else 'TensorView'}<const {cpp_type(spec, i.type, types)}>"
        parameters.append(f"{f'List<{view}>' if i.variadic else view} {i.name}")
    parameters += [f"{AttributePart(spec, a).parameter} {a.name}" for a in spec.attributes]
    for o in spec.outputs:
        kind = "NewTensor" if isinstance(o.shape, FromKernel) else "OptionalView" if o.optional else "TensorView"
        element = cpp_type(spec, o.type, types)
        parameters.append(f"{f'List<TensorView<{element}>>' if o.variadic else f'{kind}<{element}>'} {o.name}")
    return parameters


class OutputPart:
    """An output, and the code of its sizes in both bindings.

    These are made of `numbers`, or by `steps`, statements, where only a call knows its rank. Of an output that the
    kernel allocates, `known_sizes` has a pointer to each size that the binding compares: an array of
    the `pointers`, or what the steps made.
    """

    sizes = ""  # the expression of its sizes, unless the kernel allocates it
    rank = "0"
    numbers: Sequence[str]
    ort_numbers: Sequence[str]  # the same, with attributes as members of the node's class
    steps: Sequence[str]
    ort_steps: Sequence[str]
    pointers: list[str] | None = None
    known_sizes: str | None = None
    variadic: str | None = None  # the input or the attribute that says how many tensors it has
    filled = ""  # the condition that there is one of them, where no limit of an attribute says so

    def __init__(self, spec: OpSpec, output: Output) -> None:
        self.name, shape = output.name, output.shape
        self.type = cpp_type(spec, output.type)
        self.dtype = f"dtype_of<{self.type}>"
        packed = output.onnx_type is not None
        self.ort_dtype = dtype_name(output.onnx_type) if output.onnx_type else self.dtype
        self.new = isinstance(shape, FromKernel)  # whether the kernel allocates it
        # Whether the binding copies what the kernel wrote: strings, int4 and uint4.
        self.copied = packed or is_copied(spec, output.type)
        self.ort_class = f"ort::{'Packed' if packed else ''}Output<{self.type}>"  # that of a copied one
        # The template arguments of ort::NewOutput.
        self.template_arguments = f"{self.type}, {self.ort_class}" if packed else self.type
        self.optional = bool(output.optional)
        self.switch = output.optional if isinstance(output.optional, str) else None  # says whether there is one
        self.wanted = f"wants_{self.name}"  # the variable that says whether the kernel computes it
        first = sure_inputs(spec)[0]
        self.device = f"{first.name}.begin()[0]" if first.variadic else first.name  # the input on whose device it is
        self._set_sizes(spec, output)
        computed = output_expressions(spec, shape)
        self.falls = any(subtracts(resolved(spec, dim)) for dim in computed)  # whether one of them can be negative
        code = " ".join([*self.numbers, *self.steps])
        self.needs_sizes = self.falls or any(function in code for function in SIZE_FUNCTIONS)  # of sizes.h
        if output.variadic:
            self._set_count(spec, output)
        kind = "VARIADIC" if output.variadic else "OPTIONAL"
        is_one = not output.variadic and not output.optional
        self.port = self.ort_dtype if is_one else f"ort::Port({self.ort_dtype}, INPUT_OUTPUT_{kind})"
        # The kernel's arguments.
        sizes = "common_format.sizes()" if spec.elementwise else self.sizes
        view = f"{{{self.name}.data<{self.type}>(), {sizes}}}"
        self.torch_value, self.ort_value = f"TensorView<{self.type}>{view}", self.name
        if self.copied:
            self.ort_value = f"{self.name}.{'optional_' if self.optional else ''}view()"
        if self.optional:
            self.torch_value = f"OptionalView<{self.type}>{{{self.wanted if self.switch else 'true'}, {view}}}"
        if output.variadic or self.new:
            self.torch_value = self.ort_value = f"{self.name}.{'list' if output.variadic else 'tensor'}()"

    def _set_sizes(self, spec: OpSpec, output: Output) -> None:
        name, shape = output.name, output.shape
        lists = {a.name for a in spec.attributes if a.kind == "ints"}
        torch = SizeCode(spec=spec, shape="{}.sizes()".format, attribute=str)
        ort = replace(torch, attribute=lambda a: f"{a}_.list()" if a in lists else f"{a}_")
        self.steps, self.numbers = _computed(spec, output, torch)
        self.ort_steps, self.ort_numbers = _computed(spec, output, ort)
        match shape:
            case SameAs(input=owner) if not has_own_shapes(output):
                self.device, self.sizes = owner, f"{owner}.sizes()"
            case Dims(dims=dims):
                self.sizes = f"Sizes{{{name}_sizes, {len(dims)}}}" if dims else "Sizes{}"
            case FromKernel(input=str(owner)):
                self.device = owner
                self.rank, self.known_sizes = f"{name}_sizes.rank()", f"{name}_sizes.known()"
            case FromKernel(dims=declared):
                of_call = kernel_dims(spec, shape)
                self.rank = str(len(of_call))
                if declared:
                    self.known_sizes = f"{name}_known"
                    self.pointers = [
                        f"&kernel_{decided_name}" if dim is None else f"&{name}_sizes[{n}]"
                        for n, (dim, decided_name) in enumerate(zip(of_call, declared, strict=True))
                    ]
                if self.numbers:
                    self.sizes = f"Sizes{{{name}_sizes, {self.rank}}}"
        if self.steps:
            self.sizes = f"{name}_sizes.sizes()"

    def _set_count(self, spec: OpSpec, output: Output) -> None:
        """Set what says how many tensors a variadic output has."""
        part = counter(spec)
        assert part is not None
        self.variadic = name = part.name
        self.reason = reason(spec)  # in words
        if isinstance(part, Input):
            count, self.filled, self.what = f"{name}.count()", f"{name}.count() > 0", "tensor"
            self.ort_wanted = f"ort::count_variadic(attributes, {spec.inputs.index(part)})"
        elif part.kind == "ints":
            count, self.filled, self.what = f"{name}.size()", f"{name}.size() > 0", "item"
            self.ort_wanted = f"{name}_.list().size()"
        else:
            count, self.ort_wanted = name, f"{name}_"  # their number when a session is made
        of_node = f"{name}.sizes().list().size()" if isinstance(part, Input) else self.ort_wanted
        own = has_own_shapes(output)
        # In torch and in ONNX Runtime: the sizes of each of them, or their number and the sizes of all.
        self.count = name if own else f"{self.device}, {count}, {self.sizes}"
        self.ort_count = f"{name}.sizes().list()" if own else f"{of_node}, {self.sizes}"


def _computed(spec: OpSpec, output: Output, code: SizeCode) -> tuple[list[str], list[str]]:
    """Return the statements that compute the sizes of an output, or else the expressions of its sizes."""
    match output.shape:
        case Dims(dims=dims) as rule if FURTHER in dims:
            return [*added(rule, output.name, code)], []
        case SameAs() as rule if rule.replace:
            return [*replaced(rule, output.name, code)], []
        case FromKernel(input=str()) as rule:
            return [*replaced(rule, output.name, code, sizes_class="KernelSizes", decided="Decided{{&kernel_{}}}")], []
        case Dims() | FromKernel() as rule if any(dim is not None for dim in kernel_dims(spec, rule)):
            return [], ["0" if dim is None else code(dim) for dim in kernel_dims(spec, rule)]
    return [], []


def added(rule: Dims, name: str, code: SizeCode, *, sizes_class: str = "AnyRank") -> Iterator[str]:
    """Yield the statements that compute the sizes of an output, among them those of "...", as a `sizes_class`."""
    yield f"{sizes_class} {name}_sizes"
    for dim in rule.dims:
        yield f"{name}_sizes.add({code.further() if dim == FURTHER else code(dim)})"


def replaced(
    rule: SameAs | FromKernel, name: str, code: SizeCode, *, sizes_class: str = "AnyRank", decided: str = ""
) -> Iterator[str]:
    """Yield the statements that compute the sizes of an input with some of them replaced or removed, as a
    `sizes_class`; `decided` is the code of one that the kernel decides, with {} for its name."""
    assert rule.input is not None
    of_kernel = kernel_names(code.spec, rule)
    yield f"{sizes_class} {name}_sizes({code.shape(rule.input)})"
    for key, dim in rule.replace.items():
        axis = code.attribute(key) if isinstance(key, str) else str(key)
        size = f"{sizes_class}::kRemoved" if dim is None else decided.format(dim) if dim in of_kernel else code(dim)
        yield f"{name}_sizes.replace({axis}, {size})"
    if None in rule.replace.values():
        yield f"{name}_sizes.drop_removed()"
