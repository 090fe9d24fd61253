"""Render the generated C++ of an operator: the kernel's declarations and instances, and both bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cache
from typing import Any

import jinja2

from opmatrix.codegen import cpp, generated_files, jinja, variables
from opmatrix.codegen.checks import shape_attributes, shape_checks, shape_parameters, value_checks
from opmatrix.codegen.cpp import CPP_TYPES, call, literal, quoted
from opmatrix.codegen.size_code import SIZE_FUNCTIONS, SizeCode
from opmatrix.project import cpu_levels
from opmatrix.signature import signature
from opmatrix.signature.python_source import bracket
from opmatrix.signature.versions import versions
from opmatrix.sizes.expressions import FURTHER
from opmatrix.sizes.rules import decided_sizes, kernel_dims, last_inferred
from opmatrix.sizes.variadic import sure_inputs, variadic_output
from opmatrix.spec import Dims, FromKernel, OpSpec, Output, SameAs

UNKNOWN = "ort::Dim()"


def statements(spec: OpSpec) -> list[str]:
    """Return the statements of infer_shapes: they read what the rules of outputs use, and set each output's shape.

    The expressions are those of compute(); native/binding/ort_shapes.h computes with unknown sizes.
    """
    reads: dict[str, None] = {}  # in the order of their first use
    inputs = [i.name for i in spec.inputs]
    attributes = {a.name: a for a in spec.attributes}

    def shape(name: str) -> str:
        reads[f"const ort::Shape {name} = context.input({inputs.index(name)})"] = None
        return name

    def attribute(name: str) -> str:
        given = attributes[name]
        kind, getter = ("Numbers", "numbers") if given.kind == "ints" else ("Dim", "number")
        arguments = [quoted(signature.onnx_name(given))]
        if (value := given.default) is not None:
            arguments.append(_listed(map(literal, value)) if isinstance(value, tuple) else literal(value))
        reads[f"const ort::{kind} {name}_ = context.{getter}({', '.join(arguments)})"] = None
        return f"{name}_"

    code = SizeCode(spec=spec, shape=shape, attribute=attribute)
    found = [
        line
        for index, output in enumerate(spec.outputs[: last_inferred(spec) + 1])
        for line in _output(spec, output, index, code)
    ]
    return [*reads, *found]


def _output(spec: OpSpec, output: Output, index: int, code: SizeCode) -> Iterator[str]:
    found = f"{output.name}_sizes"
    match output.shape:
        case SameAs(input=name, replace=replace) if not replace:  # of a variadic input the first tensor's
            found = code.shape(name)
        case SameAs() | FromKernel(input=str()) as rule:
            yield from variables.replaced(rule, output.name, code, sizes_class="ort::Shape", decided=UNKNOWN)
        case Dims(dims=dims) as rule if FURTHER in dims:
            yield from variables.added(rule, output.name, code, sizes_class="ort::Shape")
        case Dims() | FromKernel() as rule:
            found = _listed(UNKNOWN if dim is None else code(dim) for dim in kernel_dims(spec, rule))
    element = variables.dtype_name(output.type)
    if output.type in spec.types:  # that of the first input that has it, required ones first
        of_type = [
            (not signature.is_required(part), n) for n, part in enumerate(spec.inputs) if part.type == output.type
        ]
        element = f"context.type_of({min(of_type)[1]})"
    label = f"{spec.onnx.domain}::{spec.onnx.op_type}.{output.name}."
    arguments = [str(index), element, quoted(label), found]
    if isinstance(output.optional, str):
        arguments.append(code.attribute(output.optional))
    yield call("context.output", arguments)


def _listed(sizes: Iterable[str]) -> str:
    return f"{{{', '.join(sizes)}}}"


def render(spec: OpSpec, written: Set[str] = signature.ONLY_KERNEL) -> dict[str, str]:
    """Return every generated C++ file that is not `written` by hand, by name. `spec` is a validated one."""
    values = _Bindings(spec).variables() if signature.has_kernel_object(spec, written) else {}

    def text(file: str) -> str:
        if file == signature.KERNEL:
            return spec.kernel or ""
        if file == f"{spec.name}.h":
            return '#include "compute.h"\n'
        if file == "ort_library.cc":
            return ort_library(spec.uses or [spec.name])
        return _environment().get_template(f"{file}.j2").render(values)

    return {file: text(file) for file in generated_files.cpp_files(spec, written)}


def ort_library(operators: Sequence[str], *, called: str = "") -> str:
    """Return the entry point of an ONNX Runtime library; messages name it by `operators` or as `called`, up to 1 kB."""
    title = called or ", ".join(operators)
    return _environment().get_template("ort_library.cc.j2").render(names=operators, title=title)


def races(spec: OpSpec) -> str:
    """Return the program that calls the kernel from several threads (native/binding/race_driver.h)."""
    parts = _Bindings(spec)
    inputs = [f"call.inputs.at({n}){i.view.removeprefix(i.name)}" for n, i in enumerate(parts.inputs)]
    attributes = [
        f"{at}.given() ? std::optional({at}.inner().{a.stored}) : std::nullopt" if a.there else f"{at}.{a.stored}"
        for n, a in enumerate(parts.attributes)
        for at in [f"call.attributes.at({n})"]
    ]
    switches = {a.name: a for a in parts.attributes}
    outputs = []
    for n, o in enumerate(parts.outputs):
        index = [*switches].index(o.switch) if o.switch else 0
        wanted = f"call.attributes.at({index}).{switches[o.switch].stored}" if o.switch else "true"
        view = f"outputs.at({n}).allocate<{o.type}>(call.shapes.at({n}))"
        if o.variadic:
            outputs.append(f"race_driver::Variadic<{o.type}>(outputs, {n}, call.shapes).list()")
            continue
        new = f"outputs.at({n}).tensor<{o.type}>({wanted if o.switch else ''})"
        outputs.append(new if o.new else f"OptionalView<{o.type}>{{{wanted}, {view}}}" if o.optional else view)
    names = [quoted(output.name) for output in spec.outputs]
    shared_outputs = []
    for given, n in in_place(spec):
        shared_outputs.append(f"const auto shared_{n} = {outputs[n]}")
        inputs[given], outputs[n] = f"race_driver::in_place({inputs[given]}, shared_{n})", f"shared_{n}"
    arguments = [*inputs, *attributes, *outputs]
    template = _environment().get_template("races.cc.j2")
    return template.render(parts.variables(), shared_outputs=shared_outputs, arguments=arguments, output_names=names)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja.environment("opmatrix.codegen")
    environment.globals.update(bracket=bracket, call=call, quoted=quoted)
    return environment


class _Bindings:
    """The variables of the templates for an operator."""

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec
        self.inputs = [variables.InputPart(spec, i) for i in spec.inputs]
        self.attributes = [variables.AttributePart(spec, a) for a in spec.attributes]
        self.outputs = [variables.OutputPart(spec, o) for o in spec.outputs]
        self.is_variadic = any(i.variadic for i in spec.inputs) or any(o.variadic for o in spec.outputs)
        # The kernel gets the views whose values were checked; each view of a strided tensor would be another copy.
        self.checked = value_checks(spec)
        kept = {check.input: check.views for check in self.checked}
        self.views = [
            f"{kept[i.name]}{'.list()' * (i.kind == 'variadic')}" if i.name in kept else i.view for i in self.inputs
        ]

    def variables(self) -> dict[str, Any]:
        spec, inputs, attributes, outputs = self.spec, self.inputs, self.attributes, self.outputs
        leaders = {i.type: variables.torch_dtype(i) for i in reversed(sure_inputs(spec))}
        return {
            "spec": spec,
            "levels": [*cpu_levels.NUMBERS],
            "newest_schema": versions(spec)[-1],
            "origin": f"Generated from ops/{spec.name}/spec.py, so do not edit.",
            "typenames": ", ".join(f"typename {variable}" for variable in spec.types),
            "names": [*(i.name for i in inputs), *(a.name for a in attributes), *(o.name for o in outputs)],
            "inputs": inputs,
            "outputs": outputs,
            "has_optional_outputs": any(o.optional for o in outputs),
            "attributes": attributes,
            "kernels": [variables.kernel_parameters(spec, types) for types in signature.dtype_tuples(spec)],
            # Of each binding of the type variables: template arguments, and the condition on the inputs' dtypes.
            "choices": [
                {
                    "arguments": f"<{', '.join(CPP_TYPES[dtype] for dtype in types.values())}>" if types else "",
                    "condition": " && ".join(
                        f"{leaders[v]} == {variables.dtype_name(dtype)}" for v, dtype in types.items()
                    ),
                }
                for types in signature.dtype_tuples(spec)
            ],
            "text": "string" in signature.dtypes(spec),
            "kernel_header": "kernel.h" if spec.kernel is not None else f"{spec.name}/kernel.h",
            "texts": any(a.is_texts for a in attributes),
            "optional": any(a.there for a in attributes),
            "lists": any(a.is_list for a in attributes) or self.is_variadic,
            "number_headers": cpp.number_headers(signature.dtypes(spec)),
            "listed_shapes": any(i.dims and i.kind != "required" for i in inputs),
            "computed_sizes": any(o.needs_sizes for o in outputs),
            "decided_sizes": decided_sizes(spec),
            "in_place": in_place(spec),
            "kernel_sizes": any(o.new and o.steps for o in outputs),
            "checks_with_attributes": bool(shape_attributes(spec)),
            "checks_with_sizes": any(h in " ".join(c.arguments) for c in shape_checks(spec) for h in SIZE_FUNCTIONS),
            "listed_sizes": any(p.startswith(("List<std", "List<bool")) for p in shape_parameters(spec)),
            "shape_parameters": shape_parameters(spec),
            "shape_checks": list(shape_checks(spec)),
            "value_checks": self.checked,
            "own_views": {i.name: i.view.removesuffix(".list()") for i in inputs},
            "torch": self._torch() if signature.has_torch_library(spec) else {},
            "other_names": _other_names(spec),
            "ort": self._ort(),
        }

    def _torch(self) -> dict[str, Any]:
        spec, inputs, attributes, outputs = self.spec, self.inputs, self.attributes, self.outputs
        assert spec.torch is not None
        namespace = spec.torch.name.partition("::")[0]
        newer = self.is_variadic or any(a.is_list or a.is_text for a in attributes)
        fixed = [*_constants(spec)]
        more = newer or any(i.kind == "optional" for i in inputs) or any(o.new for o in outputs)
        more = more or any(a.there for a in attributes) or any(function == "torch::check_none" for function, _ in fixed)
        since = ["torch::Since::torch_2_10"] if newer else []
        checked = shape_attributes(spec)
        views = [f"common_format.view<{variables.cpp_type(spec, i.type)}>({i.name})" for i in spec.inputs]
        return {
            "namespace": namespace,
            "schema": signature.torch_schema(spec).removeprefix(f"{namespace}::"),
            "header": "torch_outputs.h" if variadic_output(spec) else "torch_kinds.h" if more else "torch.h",
            "constants": fixed,
            "sizes": [i.torch_sizes for i in inputs if i.dims]
            + [f"{a.variable}.list()" if a.is_list else a.variable for a in attributes if a.name in checked],
            "registration": [
                quoted(namespace),
                quoted(signature.torch_qualified(spec).partition("::")[2]),
                "kSchema",
                "torch::call<torch::Value, from_stack, false>",
                "torch::call<torch::Value, from_stack, true>",
                quoted(f"ops/{spec.name}/spec.py"),
                *since,
            ],
            "run_parameters": [f"torch::{i.torch_class}& {i.name}" for i in inputs]
            + [f"{a.parameter} {a.name}" for a in attributes]
            + ["torch::Value* results"],
            "run_arguments": [i.name for i in inputs] + [a.passed for a in attributes] + ["stack"],
            "inputs": f"{{{', '.join(f'&{i.name}' for i in inputs)}}}",
            "compute_arguments": [
                *(views if spec.elementwise else self.views),
                *(a.name for a in attributes),
                *(o.torch_value for o in outputs),
            ],
        }

    def _ort(self) -> dict[str, Any]:
        spec, inputs, attributes, outputs = self.spec, self.inputs, self.attributes, self.outputs
        checked = shape_attributes(spec)
        kinds = any(i.kind == "variadic" for i in inputs) or any(o.new for o in outputs)
        kinds = kinds or any(a.is_tensor for a in attributes)
        copied = ["ort_int4.h"] * signature.has_four_bits(spec) + ["ort_strings.h"] * (
            "string" in signature.dtypes(spec)
        )
        return {
            "headers": copied or ["ort_kinds.h" if kinds else "ort.h"],
            "sizes": [i.ort_sizes for i in inputs if i.dims]
            + [a.member_value for a in attributes if a.name in checked],
            "inputs": [i.port for i in inputs],
            "outputs": [o.port for o in outputs],
            "variadic": variadic_output(spec) is not None,
            "inference": statements(spec),
            "compute_arguments": [*self.views, *(a.member_value for a in attributes), *(o.ort_value for o in outputs)],
        }


def in_place(spec: OpSpec) -> list[tuple[int, int]]:
    """Return the outputs that may have the memory of an input, as indices of input and output."""
    names = [i.name for i in spec.inputs]
    return [(names.index(o.may_inplace), n) for n, o in enumerate(spec.outputs) if o.may_inplace]


def _other_names(spec: OpSpec) -> list[list[str]]:
    """Return names that no attribute of a node has, though users may take them for one, each with the right name."""
    taken = {signature.onnx_name(a) for a in spec.attributes if not a.torch_only}
    found: dict[str, str] = {}
    for a in spec.attributes:
        first, *words = signature.onnx_name(a).split("_")
        for other in (a.name, signature.torch_name(a), first + "".join(map(str.capitalize, words))):
            if other not in taken and not a.torch_only:
                found.setdefault(other, signature.onnx_name(a))
    return [[quoted(other), quoted(name)] for other, name in found.items()]


def _constants(spec: OpSpec) -> Iterator[tuple[str, list[str]]]:
    """Yield the checks of arguments with one legal value: the function and its arguments."""
    for slot, argument in enumerate(signature.torch_arguments(spec)):
        if not isinstance(constant := argument.source, signature.Constant):
            continue
        given, value = f"stack[{slot}]", constant.value
        if value is None:
            yield "torch::check_none", [quoted(spec.name), quoted(constant.name), given]
            continue
        kind = "bool" if isinstance(value, bool) else "double" if isinstance(value, float) else "int"
        condition = f"torch::to_{kind}({given}) == {literal(value)}"
        yield "KERNEL_CHECK", [condition, quoted(f"{spec.name}: {constant}, got another value")]
