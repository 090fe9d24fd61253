"""Find the lowering of an operator, and call it with arguments and results checked against the declaration.

Record the ONNX nodes that a lowering emits, for the gates of an export and for function bodies. Needs onnx alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import AttributeProto, NodeProto, helper, numpy_helper

from opmatrix.basics.errors import ExportError
from opmatrix.data.arrays import numpy_dtype
from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.lowering.graph import Graph, Value
from opmatrix.signature.signature import (
    Argument,
    Constant,
    as_float32,
    torch_arguments,
    torch_variable,
)
from opmatrix.sizes.variadic import count, flat, variadic_output, with_count
from opmatrix.spec import Attribute, DType, Input, Lowering, OpSpec


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """An operator and the function that emits its nodes; `used` are the operators whose nodes it may emit."""

    spec: OpSpec
    lowering: Lowering
    function: Callable[..., Any]
    used: tuple[OpSpec, ...] = ()

    def __call__(self, g: Graph, arguments: Sequence[Any]) -> tuple[Value, ...]:
        """Emit the nodes for the arguments of the torch schema; return the operator's outputs, also each tensor of a
        variadic one.

        Raises ExportError for a dtype or a value that the declaration forbids, and for a wrong number of outputs.
        """
        pairs = [*zip(torch_arguments(self.spec), arguments, strict=True)]
        for argument, value in pairs:
            if isinstance(argument.source, Constant) and value != argument.source.value:
                raise ExportError(f"{self.spec.name}: {argument.source}, got {value!r}: no node has it")
        given = [(argument, value) for argument, value in pairs if not isinstance(argument.source, Constant)]
        result = self.function(g, *[self._checked(g, argument, value) for argument, value in given])
        outputs, wanted = flat(result), len(self.called(arguments).outputs)
        if len(outputs) != wanted or any(o is None for o in outputs):
            raise ExportError(
                f"the lowering {self.lowering!r} returns {len(outputs)} values, declared: {wanted} "
                f"outputs. Return them all, and give a node of several outputs outputs=<their number>"
            )
        return outputs

    def tensors(self, arguments: Sequence[Any]) -> list[tuple[Input, Value]]:
        """Return each tensor of the arguments, also of a list, with its input."""
        return [
            (argument.source, tensor)
            for argument, value in zip(torch_arguments(self.spec), arguments, strict=True)
            if isinstance(argument.source, Input) and value is not None
            for tensor in (value if isinstance(value, list | tuple) else [value])
        ]

    def called(self, arguments: Sequence[Any]) -> OpSpec:
        """Return the declaration of a call, which has an output for each tensor of a variadic one."""
        if variadic_output(self.spec) is None:
            return self.spec
        given = {a.source.name: value for a, value in zip(torch_arguments(self.spec), arguments, strict=True)}
        return with_count(self.spec, count(self.spec, given, given))

    def _checked(self, g: Graph, argument: Argument, value: Any) -> Any:
        """Return an argument, floats of attributes rounded to float32.

        Raises ExportError for what the operator's own binding rejects: an operator of torch or of Python has none. Also
        for an attribute that the node's schema does not have yet, unless the value is its default.
        """
        spec, source, domain = self.spec, argument.source, self.spec.onnx.domain
        if not isinstance(source, Attribute):
            assert isinstance(source, Input)
            allowed = spec.types.get(source.type) or (source.type,)
            for tensor in value if isinstance(value, list | tuple) else () if value is None else (value,):
                if (dtype := g.dtype(tensor)) and dtype not in allowed:
                    raise ExportError(f"{spec.name}: {source.name} must be {' or '.join(allowed)}, got {dtype}")
            return value
        if value is None:
            return None
        value = tuple(value) if isinstance(value, list) else value
        if any(
            not isinstance(item, bool | int | float | str) for item in (value if isinstance(value, tuple) else (value,))
        ):
            raise ExportError(
                f"{spec.name}: {argument.name} is a number that the model computes, such as a dynamic size, and an "
                "attribute of a node is a constant. Give it a number, or export with a static size"
            )
        if why := value_mistake(source, value):
            raise ExportError(f"{spec.name}: {argument.name}: {why}")
        value = as_float32(source, value)
        if self.lowering != "custom" or source.default is None or g.version(domain) >= (source.since or 1):
            return value
        if value != as_float32(source, source.default):
            raise ExportError(
                f"{spec.name}: {argument.name}={value!r} needs version {source.since} of {domain!r}, and the "
                f"model imports {g.version(domain)}, where it is {source.default!r}. Export at a newer version of "
                f"the domain, or leave it out"
            )
        return value


def find(
    spec: OpSpec, lowering: Lowering, *, handwritten: ModuleType | None, derived: ModuleType, path: Path
) -> Lowered:
    """Return the lowering that is `handwritten`, else the derived one. Raises ExportError if neither has it."""
    function = getattr(handwritten, lowering, None) or getattr(derived, lowering, None)
    if not callable(function):
        given = [a.source for a in torch_arguments(spec) if not isinstance(a.source, Constant)]
        names = ", ".join(["g", *(torch_variable(spec, source) for source in given)])
        raise ExportError(f"{spec.name}: no lowering {lowering!r}. Write it in {path}: def {lowering}({names})")
    return Lowered(spec=spec, lowering=lowering, function=function)


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A value of the recorded graph. Only the operator's inputs have a dtype and a shape; None is a dynamic size."""

    name: str
    dtype: DType | None = None
    shape: tuple[int | None, ...] | None = None


class NodeGraph(Graph):
    """`Graph` that collects the nodes."""

    def __init__(self, opset: int, versions: Mapping[str, int]) -> None:
        super().__init__(opset, versions)
        self.nodes: list[NodeProto] = []

    def op(self, name: str, *inputs: Value | None, outputs: int = 1, **attributes: Any) -> Any:
        domain, op_type, _, written = self._node(name, len(inputs), attributes)
        made = tuple(Tensor(name=f"v{len(self.nodes)}_{n}") for n in range(outputs))
        node = helper.make_node(
            op_type, [i.name if i else "" for i in inputs], [t.name for t in made], domain=domain or None
        )
        for a in written:
            value = numpy_helper.from_array(np.asarray(a.value)) if a.letter == "t" else a.value
            kind = AttributeProto.AttributeType.Value(a.type)
            node.attribute.append(helper.make_attribute(a.name, value, attr_type=kind))
        self.nodes.append(node)
        return made if outputs > 1 else made[0]

    def constant(self, value: ArrayLike, dtype: DType) -> Value:
        return self.op("Constant", value_t=np.asarray(value, numpy_dtype(dtype)))

    def dtype(self, value: Value) -> DType:
        if value.dtype is None:
            raise ExportError("g.dtype() is known for the operator's own inputs alone")
        return value.dtype  # type: ignore[no-any-return]  # any tensor-like value

    def rank(self, value: Value) -> int:
        return len(self._shape(value))

    def _size(self, value: Value, axis: int) -> int | None:
        return self._shape(value)[axis]

    def _shape(self, value: Value) -> tuple[int | None, ...]:
        if value.shape is None:
            raise ExportError("g.rank() and g.dim() are known for the operator's own inputs alone")
        return value.shape  # type: ignore[no-any-return]  # any tensor-like value


def record(
    lowered: Lowered, arguments: Sequence[Any], *, opset: int, versions: Mapping[str, int], outputs: Sequence[str]
) -> tuple[NodeProto, ...]:
    """Return the nodes that a lowering emits for `arguments`, each tensor a `Tensor`; `outputs` name its results."""
    g = NodeGraph(opset, versions)
    results = lowered(g, arguments)
    renamed = {result.name: name for result, name in zip(results, outputs, strict=True)}
    made = {name for node in g.nodes for name in node.output}
    if len(renamed) != len(outputs) or not renamed.keys() <= made:
        raise ExportError(f"the lowering {lowered.lowering!r} returns an input, or one value twice; emit an Identity")
    for node in g.nodes:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
    return tuple(g.nodes)
