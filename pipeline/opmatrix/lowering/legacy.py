"""Lowerings as symbolic functions of the legacy (TorchScript) exporter. Needs torch and onnx."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.onnx import symbolic_helper

from opmatrix.basics.errors import ExportError
from opmatrix.lowering.call import Lowered
from opmatrix.lowering.graph import Graph, Value
from opmatrix.signature.signature import Argument, Constant, onnx_name, torch_arguments, torch_qualified, torch_variable
from opmatrix.sizes.known import Known
from opmatrix.sizes.variadic import nested, shapes_by_input, variadic_output, with_count
from opmatrix.spec import Attribute, AttributeValue, DType, Input, OpSpec

Sizes = Sequence[int | None]

# The letters of `parse_args`. It has none for the other kinds: "v" does not unpack them.
_LETTERS: Mapping[str, str] = {
    "float": "f", "int": "i", "string": "s", "bool": "b", "floats": "fs", "ints": "is",
}  # fmt: skip


class LegacyGraph(Graph):
    """`Graph` over the graph that the exporter passes to a symbolic function.

    `versions` are those of custom domains, as in custom_opsets=. `used` are the operators that the lowering uses:
    their declarations give the types of their nodes' outputs. `own` is the operator of the lowering.
    """

    def __init__(
        self,
        context: Any,
        opset: int,
        versions: Mapping[str, int],
        used: Sequence[OpSpec] = (),
        own: OpSpec | None = None,
    ) -> None:
        super().__init__(opset, versions)
        self._context = context
        self._used = {f"{s.onnx.domain}::{s.onnx.op_type}": s for s in used}
        operators = self._used | ({f"{own.onnx.domain}::{own.onnx.op_type}": own} if own else {})
        self._variadic = {node for node, spec in operators.items() if any(i.variadic for i in spec.inputs)}

    def op(self, name: str, *inputs: Value | None, outputs: int = 1, **attributes: Any) -> Any:
        *_, written = self._node(name, len(inputs), attributes)
        # Omit absent inputs at the end, as every other exporter does; ONNX counts those before a variadic input.
        present = list(inputs)
        while present and present[-1] is None and name not in self._variadic:
            present.pop()
        tensors = {a.name: torch.from_numpy(np.array(a.value)) for a in written if a.letter == "t"}
        passed = {f"{a.name}_{a.letter}": tensors.get(a.name, a.value) for a in written}
        emitted = self._context.op(name, *map(self._present, present), outputs=outputs, **passed)
        if spec := self._used.get(name):
            named = {part.name: value for part, value in zip(spec.inputs, inputs, strict=False) if value is not None}
            names = {onnx_name(a): a.name for a in spec.attributes}
            values = {names.get(a.name, a.name): a.value for a in written}
            results = emitted if isinstance(emitted, tuple) else (emitted,)
            set_types(with_count(spec, len(results) - len(spec.outputs) + 1), named, values, results)
        return emitted

    def constant(self, value: ArrayLike, dtype: DType) -> Value:
        tensor = torch.tensor(np.asarray(value).tolist(), dtype=getattr(torch, dtype))
        return self._context.op("Constant", value_t=tensor)

    def dtype(self, value: Value) -> DType:
        return str(value.type().dtype()).removeprefix("torch.")  # type: ignore[return-value]  # torch names its dtypes as DType does

    def rank(self, value: Value) -> int:
        return int(value.type().dim())

    def _size(self, value: Value, axis: int) -> int | None:
        sizes = value.type().varyingSizes()
        return int(sizes[axis]) if sizes and sizes[axis] is not None else None

    def _present(self, value: Value | None) -> Value:
        if value is not None:
            return value
        absent = self._context.op("prim::Constant")
        absent.setType(torch._C.NoneType.get())
        return absent


@contextmanager
def registered(lowered: Lowered, opset: int, versions: Mapping[str, int], names: Sequence[str]) -> Iterator[None]:
    """Register a lowering as the symbolic function of the torch operators `names` for one export.

    Raises ExportError if one is registered for this opset already: torch calls only the last of two. Overloads of one
    operator share theirs, and so do `my::f` and `my::f_`.
    """
    own = f"{lowered.spec.onnx.domain}::{lowered.spec.onnx.op_type}"
    is_function = own in names
    # Whose function torch asks for: it takes an operator that ends with an underscore for the in-place one of another
    # (`_run_symbolic_function`).
    names = [name.removesuffix("_") for name in names]
    before = _registered(names[0], opset)
    others = getattr(before, "overloads", ())
    shares = bool(others) and torch_qualified(lowered.spec) not in [torch_qualified(one.spec) for one, _ in others]
    for name in names:
        if _registered(name, opset) and not shares:
            raise ExportError(
                f"{lowered.spec.name}: a symbolic function of {name} is registered for opset {opset} already, and only "
                "one of two is asked. Remove that call of register_custom_op_symbolic: opmatrix makes its own for each "
                "export"
            )
    register(lowered, opset, versions, names, others)
    try:
        with _taken_for_a_function(own, versions.get(lowered.spec.onnx.domain, 1)) if is_function else nullcontext():
            yield
    finally:
        if shares:
            torch.onnx.register_custom_op_symbolic(names[0], before, opset)  # type: ignore[attr-defined]  # as below
        for name in () if shares else names:
            if _registered(name, opset):
                torch.onnx.unregister_custom_op_symbolic(name, opset)  # type: ignore[attr-defined]  # as below
            # With the empty group that torch keeps, the next export fails with "min() arg is an empty sequence".
            if (group := _registry().get_function_group(name)) is not None and not len(group._functions):
                _registry()._registry.pop(name, None)


@contextmanager
def _taken_for_a_function(name: str, version: int) -> Iterator[None]:
    """Register something for a node with the name of its torch operator, at the version of its domain: torch takes the
    node for a function of onnxscript, and raises UnsupportedOperatorError where nothing is registered at that version.
    """
    if _registered(name, version):  # by another overload
        yield
        return
    torch.onnx.register_custom_op_symbolic(name, _NoFunction(), version)  # type: ignore[attr-defined]  # as below
    try:
        yield
    finally:
        if _registered(name, version):
            torch.onnx.unregister_custom_op_symbolic(name, version)  # type: ignore[attr-defined]  # as below


class _NoFunction:
    def __call__(self, *_: Any, **__: Any) -> Any:
        raise ExportError("the legacy exporter has no opset as low as the version of a custom domain")


def _registered(name: str, opset: int) -> Any:
    """Return the custom symbolic function that is registered for exactly this opset, or None; torch's own is none."""
    group = _registry().get_function_group(name)
    return group._functions.get(opset) if group is not None and group._functions.overridden(opset) else None


def register(
    lowered: Lowered,
    opset: int,
    versions: Mapping[str, int],
    names: Sequence[str],
    others: Sequence[tuple[Lowered, Any]] = (),
) -> None:
    """Register a lowering as the symbolic function of the torch operators `names`, for exports at `opset` exactly:
    torch takes the registration of the highest opset that is not above the requested one.

    `others` are the lowerings of other overloads of the operator, with their functions.
    """
    for name in names:
        function = symbolic(lowered, opset, versions)
        overloads = (*others, (lowered, function))
        if others:
            function = partial(_call_overload, overloads)
        function.overloads = overloads
        # torch.onnx has it as a public name and does not re-export it for type checkers (2.13).
        torch.onnx.register_custom_op_symbolic(name, function, opset)  # type: ignore[attr-defined]  # torch.onnx does not export it in its stubs


def _call_overload(overloads: Sequence[tuple[Lowered, Any]], context: Any, *values: Any) -> Any:
    """Call the symbolic function of the only overload that takes the arguments: a node does not name its overload."""
    called = context.original_node.kind()
    named = [one for one in overloads if torch_qualified(one[0].spec).partition(".")[0] == called]
    fitting = [one for one in named or overloads if _may_take(one[0], values)]
    if len(fitting) != 1:
        names = ", ".join(lowered.spec.name for lowered, _ in fitting or overloads)
        raise ExportError(
            f"{'each' if fitting else 'none'} of {names} takes these {len(values)} arguments, and the legacy exporter "
            "does not say which overload is called. Use the dynamo exporter"
        )
    return fitting[0][1](context, *values)


def _may_take(lowered: Lowered, values: Sequence[Any]) -> bool:
    """Return whether a node with these arguments may be one of the operator: None and a list are no tensor, and an
    attribute is a constant."""

    def fits(argument: Argument, value: Any) -> bool:
        source, kind, none = argument.source, value.node().kind(), symbolic_helper._is_none(value)
        if isinstance(source, Input):
            if source.variadic or kind == "prim::ListConstruct":
                return source.variadic and kind == "prim::ListConstruct"
            return source.optional or not none
        constant = kind in ("prim::Constant", "onnx::Constant", "prim::ListConstruct")
        return constant and (isinstance(source, Constant) or source.optional or not none)

    arguments = torch_arguments(lowered.spec)
    return len(arguments) == len(values) and all(map(fits, arguments, values))


def _registry() -> Any:
    """Return torch's registry of symbolic functions, a private name that moved in torch 2.9."""
    try:
        return importlib.import_module("torch.onnx._internal.torchscript_exporter.registration").registry
    except ImportError:
        return importlib.import_module("torch.onnx._internal.registration").registry


def symbolic(lowered: Lowered, opset: int, versions: Mapping[str, int]) -> Any:
    """Return a lowering as a symbolic function, which parses the arguments and sets the types of the results."""
    arguments = torch_arguments(lowered.spec)

    def run(context: Any, *values: Any) -> Any:
        parsed = [_parse(a, value) for a, value in zip(arguments, values, strict=True)]
        outputs = lowered(LegacyGraph(context, opset, versions, lowered.used, lowered.spec), parsed)
        attributes = {a.source.name: value for a, value in zip(arguments, parsed, strict=True)}
        set_types(lowered.called(parsed), shapes_by_input(lowered.tensors(parsed)), attributes, outputs)
        if variadic_output(lowered.spec) is None:
            return outputs if len(outputs) > 1 else outputs[0]
        *fixed, several = nested(lowered.spec, outputs) if len(lowered.spec.outputs) > 1 else [[*outputs]]
        made = context.op("prim::ListConstruct", *several)
        made.setType(torch._C.ListType.ofTensors())
        return (*fixed, made) if fixed else made

    parameters = [inspect.Parameter("g", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    names = [torch_variable(lowered.spec, a.source) for a in arguments]
    parameters += [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # parse_args takes names from it
    run.__name__ = lowered.spec.name
    kinds = [a.source.kind if isinstance(a.source, Attribute) else "" for a in arguments]
    letters: list[Any] = [_LETTERS.get(kind, "v") for kind in kinds]
    return symbolic_helper.parse_args(*letters)(run)


def _parse(argument: Argument, value: Any) -> Any:
    source = argument.source
    if isinstance(source, Input):
        if source.variadic:
            return symbolic_helper._unpack_list(value)
        return None if source.optional and symbolic_helper._is_none(value) else value
    # Others are parsed by now: torch 1.13's and 2.0's `_is_none` takes values of the graph alone.
    if (isinstance(source, Constant) or source.kind in ("strings", "bools")) and symbolic_helper._is_none(value):
        return None
    if isinstance(source, Constant):  # it has one legal value
        letter = {"bool": "b", "int": "i", "SymInt": "i", "float": "f"}.get(argument.type)
        return symbolic_helper._parse_arg(value, letter, argument.name) if letter else "another value"  # type: ignore[arg-type]  # a letter of it
    if source.kind in ("strings", "bools"):
        letter = source.kind[0]
        items = symbolic_helper._unpack_list(value)
        return [symbolic_helper._parse_arg(v, letter, argument.name) for v in items]  # type: ignore[arg-type]  # a list of values of the graph
    return value


def set_types(
    spec: OpSpec, inputs: Mapping[str, Value], attributes: Mapping[str, AttributeValue], outputs: Sequence[Value]
) -> None:
    """Set the type of each output by the declared shape rules, as far as the inputs' types are known: else it is lost.

    `inputs` has the present inputs by name: of a variadic one the first tensor, and each as ``xs[1]``. `attributes` may
    omit defaults.
    """
    # A dynamic size is None, and so are the sizes where the rank is unknown.
    sizes_of = {name: value.type().varyingSizes() for name, value in inputs.items()}
    shapes: dict[str, Sizes] = {name: sizes for name, sizes in sizes_of.items() if sizes is not None}
    known = Known(spec=spec, shapes=shapes, attributes=attributes)
    for output, value in zip(spec.outputs, outputs, strict=True):
        if output.type in spec.types:
            alike = [inputs[i.name] for i in spec.inputs if i.type == output.type and i.name in inputs]
            dtype = alike[0].type().dtype() if alike else None
        else:
            dtype = getattr(torch, output.type)
        if dtype is not None:
            bare = torch._C.TensorType.get().with_dtype(dtype)
            found = known.output(output)
            sizes = None if found is None else [size if isinstance(size, int) else None for size in found]
            value.setType(bare if sizes is None else bare.with_sizes(sizes))
