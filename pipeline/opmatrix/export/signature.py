"""The declared signature of a model: name, dtype and shape of every graph input and output."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto, helper

from opmatrix.declaration.known_sizes import Known
from opmatrix.declaration.model_inputs import GraphInput, graph_inputs, graph_outputs, output_name
from opmatrix.declaration.torch_signature import attribute_values, dtype_of
from opmatrix.declaration.variadic_outputs import shapes_by_input
from opmatrix.errors import ExportError
from opmatrix.spec import DType, Model, OpSpec, Output, shape_of

Shape = tuple[int | str | None, ...]
"""Sizes: a number if static, else the name of a dynamic axis, or None for a dynamic size without a name."""


@dataclass(frozen=True, kw_only=True)
class ValueInfo:
    """One graph input or output."""

    name: str
    dtype: DType
    shape: Shape

    @property
    def axes(self) -> dict[int, str]:
        """The names of its dynamic axes, by index."""
        return {index: size for index, size in enumerate(self.shape) if isinstance(size, str)}


@dataclass(frozen=True, kw_only=True)
class GraphSignature:
    """All graph inputs and outputs, in the declared order. torch.export has another class of this name."""

    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]


def graph_signature(spec: OpSpec, model: Model) -> GraphSignature:
    """Return the signature that a model must have in every exporter and opset."""
    fed = graph_inputs(spec, model, model.cases[0])
    shapes = [(feed, _input_shape(model, feed)) for feed in fed]
    first = shapes_by_input((feed.part, shape) for feed, shape in shapes)
    known = Known(spec=spec, shapes=first, attributes=attribute_values(spec, model))

    def dtype(declared: str) -> DType:
        return dtype_of(declared, model.types)

    return GraphSignature(
        inputs=tuple(ValueInfo(name=f.name, dtype=dtype(f.part.type), shape=shape) for f, shape in shapes),
        outputs=tuple(
            ValueInfo(name=output_name(model, o), dtype=dtype(o.type), shape=_output_shape(o, known))
            for o in graph_outputs(spec, model)
        ),
    )


def element_dtype(element: int) -> str:
    """Return the dtype of an element type of ONNX, or "" if it is not set."""
    if element == TensorProto.STRING:
        return "string"
    return str(helper.tensor_dtype_to_np_dtype(element)) if element else ""


def _input_shape(model: Model, feed: GraphInput) -> Shape:
    sizes = shape_of(feed.tensor)
    axes = model.dynamic.get(feed.part.name, (None,) * len(sizes))
    return tuple(size if axis is None else axis for size, axis in zip(sizes, axes, strict=True))


def _output_shape(output: Output, known: Known) -> Shape:
    """Return the sizes of an output. Raises ExportError where attributes or inputs give none."""
    try:
        sizes = known.output(output)
    except ValueError as error:
        raise ExportError(f"output {output.name!r} has no shape: {error}") from error
    assert sizes is not None, "every input has its shape"
    return tuple(sizes)
