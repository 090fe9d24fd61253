"""Render the generated Python modules of an operator: ONNX schema, fake kernel and lowering.

They import their framework and nothing of opmatrix, so that they can be loaded and debugged alone. They register
nothing on import: a stage calls the function that registers.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jinja2

from opmatrix.codegen import generated_files, jinja, onnx_schema
from opmatrix.codegen.size_checks import size_checks
from opmatrix.codegen.size_code import ITEM, PythonSizes
from opmatrix.project.dtypes import FACTS, carries
from opmatrix.signature import signature, versions
from opmatrix.signature.python_source import bracket, literal
from opmatrix.sizes.expressions import FURTHER, terms
from opmatrix.sizes.rules import decided_sizes, divisors, expressions, kernel_dims, kernel_names, least
from opmatrix.sizes.variadic import counter, has_own_shapes, sure_inputs, variadic_output
from opmatrix.spec import Attribute, Dims, FromKernel, Input, OpSpec, Output, SameAs

# The types of the torch schema in Python, without lengths; torch passes lists and accepts tuples.
_PYTHON_TYPES: Mapping[str, str] = {
    "Tensor": "torch.Tensor", "Tensor?": "torch.Tensor | None", "Tensor[]": "Sequence[torch.Tensor]",
    "float": "float", "int": "int", "bool": "bool", "str": "str",
    "float[]": "Sequence[float]", "int[]": "Sequence[int]", "bool[]": "Sequence[bool]", "str[]": "Sequence[str]",
    "ScalarType": "torch.dtype", "Layout": "torch.layout", "Device": "torch.device | str",
    "Generator": "torch.Generator", "Generator?": "torch.Generator | None",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The condition of a wrong input and its message; `of` is the variadic input whose tensors it checks, or None."""

    condition: str
    message: str
    of: str | None = None


def render(spec: OpSpec, written: Set[str] = signature.ONLY_KERNEL) -> dict[str, str]:
    """Return the content of every generated Python file, by name. `spec` is a validated one."""
    variables = onnx_schema.variables(spec) | (_variables(spec) if spec.torch else {})
    variables["own_torch"] = signature.is_own(signature.OWN_TORCH, spec, written)
    return {
        name: environment().get_template(f"{name}.j2").render(variables) for name in generated_files.python_files(spec)
    }


@cache
def environment() -> jinja2.Environment:
    """Return the Jinja environment for Python, with the filter `literal` and the function `bracket`."""
    jinja_environment = jinja.environment("opmatrix.codegen")
    jinja_environment.filters["literal"] = literal
    jinja_environment.globals["bracket"] = bracket
    return jinja_environment


def _variables(spec: OpSpec) -> dict[str, Any]:
    assert spec.torch is not None
    namespace, _, function = signature.torch_operator_name(spec).partition("::")
    arguments = signature.torch_arguments(spec)
    names = {a.source.name: signature.torch_variable(spec, a.source) for a in arguments}
    attributes = [a for a in spec.attributes if a.name in names and not a.torch_only]
    _, *later = versions.versions(spec)
    node_outputs = str(len(spec.outputs)) if len(spec.outputs) > 1 else ""
    if variadic_output(spec):
        node_outputs = " + ".join([*([str(len(spec.outputs) - 1)] if len(spec.outputs) > 1 else []), _count(spec)])
    return {
        "spec": spec,
        "namespace": namespace,
        "function": function,
        "overload": signature.torch_overload(spec),
        "torch_schema": signature.torch_schema(spec).removeprefix(f"{namespace}::"),
        "names": [names[a.source.name] for a in arguments if not isinstance(a.source, signature.Constant)],
        "tensors": [f"*{i.name}" if i.variadic else i.name for i in spec.inputs],
        "sequences": any("Sequence" in _python_type(a) for a in arguments),
        "typed": _parameters(arguments, [a.name if a.keyword else names[a.source.name] for a in arguments]),
        "renamed": [(names[a.source.name], a.name) for a in arguments if a.keyword and names[a.source.name] != a.name],
        "passed": [(signature.onnx_name(a), _letter(a), names[a.name]) for a in attributes if a.since is None],
        "later": [
            (
                version,
                [f'"{versions.MARK}_i": {version}']
                + [
                    f'"{signature.onnx_name(a)}_{_letter(a)}": {names[a.name]}'
                    for a in attributes
                    if a.since == version
                ],
            )
            for version in later
        ],
        "results": [_result(spec, o) for o in spec.outputs],
        "node_outputs": node_outputs,  # the expression of how many outputs a node has, "" for one
        "casts": [(part, names[part.name], _ELEMENTS[part.onnx_type]) for part in spec.inputs if part.onnx_type],
        "returned": _returned(spec) if any(o.onnx_type for o in spec.outputs) else "",
        "faults": [*_argument_faults(spec), *_dtype_faults(spec), *shape_faults(spec)],
        "finds_sizes": any(isinstance(o.shape, FromKernel) for o in spec.outputs),
        # The variables of the sizes that the kernel decides.
        "new_sizes": [f"new_{name}" for name in decided_sizes(spec)],
        "replaces": any(isinstance(o.shape, SameAs | FromKernel) and o.shape.replace for o in spec.outputs),
        "multiplies": any(t.kind == "product" for one in expressions(spec) for t in terms(one)),
        "composed": _composed(spec) if signature.is_composed(spec) else None,
    }


def _composed(spec: OpSpec) -> dict[str, Any]:
    """Return how the operator that others call calls the one in the library."""
    schema, outputs = signature.written_schema(spec), signature.written_outputs(spec)
    assert schema is not None
    arguments, names = _callers_arguments(spec), {}
    for a in arguments:
        usable = a.name.isidentifier() and not keyword.iskeyword(a.name)
        names[a.name] = a.name if usable else signature.torch_variable(spec, a.source)
    called = signature.torch_arguments(spec)
    aliases = {a.type.alias: names[a.name] for a in schema.arguments if signature.is_written(a)}
    fresh = (n for n, o in enumerate(spec.outputs) if o not in outputs.values())
    tensors = ", ".join(names[a.name] for a in called if isinstance(a.source, Input))
    given = names | {name: f"_before({names[name]}, {tensors})" for name in outputs}
    numbers = {a.name: a.type.removesuffix("?") for a in called if a.name in signature.scalars(spec)}
    given |= {name: f"_number({names[name]}, {kind}, {name!r})" for name, kind in numbers.items()}
    for name, attribute in signature.seeds(spec).items():
        given[name] = f"next_seed({names[name]}, {', '.join(map(repr, signature.seed_range(attribute)))})"
        if attribute.default is not None or attribute.optional:  # else torch's default generator gives the seed of None
            given[name] = f"{attribute.default} if {names[name]} is None else {given[name]}"
    overload = f".{schema.overload}" if schema.overload else ""
    return {
        "function": schema.name,
        "overload": schema.overload,
        "name": schema.name + overload,
        "schema": signature.callers_schema(spec).partition("::")[2],
        "typed": _parameters(arguments, [names[a.name] for a in arguments]),
        "passed": [f"{a.name}={given[a.name]}" if a.keyword else given[a.name] for a in called],
        "numbers": bool(numbers),
        "fixed": [*map(_fixed_fault, signature.fixed(spec))],
        "seeds": bool(signature.seeds(spec)),
        "written": [(names[name], spec.outputs.index(output), output.writes) for name, output in outputs.items()],
        "returned": [
            aliases[r.type.alias] if signature.is_written(r) else f"results[{next(fresh)}]" for r in schema.results
        ],
    }


def _callers_arguments(spec: OpSpec) -> tuple[signature.Argument, ...]:
    """Return the arguments of the operator that others call: also those of ``out=``, and generators."""
    schema = signature.written_schema(spec)
    known = {a.name: a for a in (*signature.torch_arguments(spec), *signature.fixed(spec))}
    if schema is None or not signature.is_composed(spec):
        return tuple(known.values())
    if generators := signature.seeds(spec):
        given = {a.name: a for a in schema.arguments}
        known |= {
            name: replace(known[name], type=given[name].type.name, default=None, has_default=given[name].has_default)
            for name in generators
        }
    return tuple(
        known.get(a.name)
        or signature.Argument(
            name=a.name, type="Tensor", default=None, source=Input(name=a.name, type=""), keyword=a.keyword
        )
        for a in schema.arguments
    )


def _letter(attribute: Attribute) -> str:
    """Return the suffix of an attribute's name in `g.op(...)`: f, i, s or t."""
    return signature.onnx_kind(attribute.kind)[0].lower()


def function(spec: OpSpec) -> dict[str, Any]:
    """Return how the operator is called in Python: typed parameters, what is passed on, and what it returns."""
    arguments, schema = _callers_arguments(spec), signature.written_schema(spec)
    results = spec.outputs if schema is None else schema.results
    kinds = ["list[torch.Tensor]" if output.variadic else "torch.Tensor" for output in spec.outputs]
    tensors = ", ".join(kinds if schema is None or len(kinds) == len(results) else ["torch.Tensor"] * len(results))
    returns = tensors if len(results) == 1 else f"tuple[{tensors}]" if results else "None"
    names = [f"{a.name}_" if keyword.iskeyword(a.name) or a.name == "torch" else a.name for a in arguments]
    passed = [f"{a.name}={name}" if a.keyword else name for a, name in zip(arguments, names, strict=True)]
    return {"typed": _parameters(arguments, names, called=True), "passed": passed, "returns": returns}


def _parameters(arguments: Sequence[signature.Argument], names: Sequence[str], *, called: bool = False) -> list[str]:
    """Return the Python parameters, with the defaults of the schema.

    In a function that is `called`, an optional input has the default None if no required argument follows.
    """
    parameters: list[str] = []
    last = True
    for argument, name in zip(reversed(arguments), reversed(names), strict=True):
        default = f" = {literal(argument.default)}" if argument.has_default else ""
        if called and not default and argument.type == "Tensor?" and (last or argument.keyword):
            default = " = None"
        parameters.append(f"{name}: {_python_type(argument)}{default}")
        last = last and bool(default)
    parameters.reverse()
    if star := next((n for n, argument in enumerate(arguments) if argument.keyword), None):
        parameters.insert(star, "*")
    return parameters


def _python_type(argument: signature.Argument) -> str:
    may_be_none = isinstance(argument.source, Attribute) and argument.source.optional
    kind = argument.type.removesuffix("?") if may_be_none else argument.type
    found = _PYTHON_TYPES.get(re.sub(r"\[\d+\]$", "[]", kind).replace("SymInt", "int"), "object")
    return found + " | None" * may_be_none


# The fake kernel's error checks and outputs.


def _result(spec: OpSpec, output: Output) -> dict[str, str | None]:
    """Return the expression of an output's shape, of its dtype, or None for that of the input `like`, and in `each` the
    loop over the tensors of a variadic one."""
    sure, own = sure_inputs(spec), output.variadic is not None and has_own_shapes(output)
    like = sure[0]
    if isinstance(output.shape, SameAs | FromKernel) and output.shape.input is not None:
        like = next(i for i in sure if i.name == output.shape.input)
    shape = f"{ITEM}.shape" if own else output_shape(spec, output, like)
    if isinstance(output.optional, str):
        switch = next(signature.torch_variable(spec, a) for a in spec.attributes if a.name == output.optional)
        shape = f"{shape} if {switch} else (0,)"
    dtype, each = None, None
    if like.type != output.type:
        of_type = (first_of(i) for i in sure if output.type in spec.types and i.type == output.type)
        dtype = next((f"{name}.dtype" for name in of_type), f"torch.{output.type}")
    if output.variadic:
        each = f"for {ITEM} in {output.variadic}" if own else f"for _ in range({_count(spec)})"
    like_name = ITEM if own else first_of(like)
    return {"name": output.name, "like": like_name, "shape": shape, "dtype": dtype, "each": each}


def first_of(part: Input) -> str:
    """Return the variable of an input that every call has, of the first tensor of a variadic one."""
    return f"{part.name}[0]" if part.variadic else part.name


def output_shape(spec: OpSpec, output: Output, like: Input) -> str:
    """Return the expression of an output's shape."""
    python = PythonSizes.of(spec)
    match output.shape:
        case SameAs(replace=replace) if not replace:
            return f"{like.name}.shape"
        case SameAs(replace=replace) | FromKernel(input=str(), replace=replace):
            # int() fixes an axis that torch.compile(dynamic=True) takes for a symbol, which no dict can have as a key.
            axes = [f"int({python.attribute(key)})" if isinstance(key, str) else key for key in replace]
            decided = {name: f"new_{name}" for name in kernel_names(spec, output.shape)}
            sizes = [None if dim is None else decided.get(str(dim)) or python(dim) for dim in replace.values()]
            changed = [f"{axis}: {size}" for axis, size in zip(axes, sizes, strict=True)]
            return f"with_replaced({like.name}.shape, {{{', '.join(changed)}}})"
        case Dims(dims=dims):
            return _tuple([f"*{python.further()}" if dim == FURTHER else python(dim) for dim in dims])
        case FromKernel(dims=None, rank=rank):
            return _tuple(["new_size()"] * (rank or 0))
        case FromKernel(dims=dims) as rule:
            known = zip(dims or (), kernel_dims(spec, rule), strict=True)
            return _tuple([f"new_{name}" if dim is None else python(dim) for name, dim in known])
    raise ValueError(f"output {output.name!r} has no shape rule")


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _count(spec: OpSpec) -> str:
    """Return the expression of how many tensors the variadic output has."""
    part = counter(spec)
    assert part is not None
    name = signature.torch_variable(spec, part)
    return name if isinstance(part, Attribute) and part.kind == "int" else f"len({name})"


# The numbers of the element types in ONNX (onnx.TensorProto), which this process does not import.
_ELEMENTS: Mapping[str, int] = {"int8": 3, "uint8": 2, "uint4": 21, "int4": 22}


def _returned(spec: OpSpec) -> str:
    """Return the expression of the outputs of a lowering, of which `made` are those of the node."""
    several = len(spec.outputs) > 1
    found = [f"made[{n}]" if several else "made" for n in range(len(spec.outputs))]
    return ", ".join(
        f'g.op("Cast", {name}, to_i={_ELEMENTS[output.type]})' if output.onnx_type else name
        for name, output in zip(found, spec.outputs, strict=True)
    )


def _fixed_fault(argument: signature.Argument) -> tuple[str, str]:
    """Return the condition under which an argument of `TorchOp.fixed` has another value, and the message."""
    name, value = argument.name, argument.source.value if isinstance(argument.source, signature.Constant) else None
    if value is None:
        return f"{name} is not None", f"{name} must be None, got {{{name}}}"
    if not argument.type.startswith("Device"):
        return f"{name} != {_torch_constant(str(value))}", f"{name} must be torch.{value}, got {{{name}}}"
    absent = f"{name} is None or " if argument.type.endswith("?") else ""
    return f"{absent}torch.device({name}).type != {literal(value)}", f"{name} must be {value}, got {{{name}}}"


def _torch_constant(name: str) -> str:
    """Return the expression of a dtype or a layout. torch 1.13, which imports these modules, has not all dtypes."""
    is_newer = name in FACTS and not carries("torch", name, "1.13")
    return f'getattr(torch, "{name}", None)' if is_newer else f"torch.{name}"


def _argument_faults(spec: OpSpec) -> Iterator[Refusal]:
    """Yield the checks of constants, and that there is a tensor of what counts outputs."""
    for constant in signature.constants(spec):
        wrong = f"{constant.name} {'is not' if constant.value is None else '!='} {constant.value!r}"
        yield Refusal(condition=wrong, message=f"{constant}, got {{{constant.name}!r}}")
    part = counter(spec)
    if part is None or part in divisors(spec):
        return
    name = signature.torch_variable(spec, part)
    if isinstance(part, Attribute) and part.kind == "int":
        message = f"{name} must be at least {least(part):g}, got {{{name}}}"
        yield Refusal(condition=f"{name} < {least(part):g}", message=message)
        return
    what = "tensor" if isinstance(part, Input) else "item"
    yield Refusal(condition=f"len({name}) == 0", message=f"{name} must have at least one {what}, got none")


def _dtype_faults(spec: OpSpec) -> Iterator[Refusal]:
    leaders = {i.type: i for i in reversed(sure_inputs(spec)) if i.type in spec.types}
    for part in spec.inputs:
        name, found = part.name, ITEM if part.variadic else part.name
        leader = leaders.get(part.type)
        if leader and (leader is not part or part.variadic):
            first, shown = first_of(leader), "its first tensor" if leader is part else leader.name
            message = f"{name} must be {{{first}.dtype}} as {shown} is, got {{{found}.dtype}}"
            yield _fault(part, f"{found}.dtype != {first}.dtype", message)
        if leader and leader is not part:
            continue
        dtypes = spec.types.get(part.type, (part.type,))
        allowed = [f"torch.{dtype}" for dtype in dtypes]
        known = [*map(_torch_constant, dtypes)]
        wrong = f"!= {known[0]}" if len(known) == 1 else f"not in ({', '.join(known)})"
        yield _fault(part, f"{found}.dtype {wrong}", f"{name} must be {' or '.join(allowed)}, got {{{found}.dtype}}")


def _fault(part: Input, condition: str, message: str, *, among: Sequence[Input] = ()) -> Refusal:
    """Return the check of an input, with the condition that an optional one is present, and so are those `among`."""
    if present := dict.fromkeys(i.name for i in (part, *among) if i.optional):
        bare = " or " not in condition
        condition = " and ".join(f"{name} is not None" for name in present) + (
            f" and {condition if bare else f'({condition})'}"
        )
    return Refusal(condition=condition, message=message, of=part.name if part.variadic else None)


def shape_faults(spec: OpSpec) -> Iterator[Refusal]:
    """Yield the shape checks of each input, with the messages of the compiled binding."""
    for attribute in divisors(spec):
        name, many = signature.torch_name(attribute), attribute.kind == "ints"
        variable = signature.torch_variable(spec, attribute)
        wrong = f"min({variable}, default=1)" if many else variable
        message = f"{name} must {'each ' * many}be at least {least(attribute):g}, got {{{wrong}}}"
        yield Refusal(condition=f"{wrong} < {least(attribute):g}", message=message)
    for check in size_checks(PythonSizes.of(spec)):
        message = "".join(f"{{{part}}}" if n % 2 else part for n, part in enumerate(check.message))
        condition = " or ".join(check.conditions)
        if check.part is None:
            yield Refusal(condition=condition, message=message)
        else:
            yield _fault(check.part, condition, message, among=check.among)
