"""The signature of a model: name, dtype and shape of every graph input and output, as the declaration has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.schema import dtype_of
from pipeline.spec import DType, Model, OpSpec, Output, SameAs, shape_of

Shape = tuple[int | str, ...]
"""Sizes: a number where static, the name of a dynamic axis where not."""


@dataclass(frozen=True, kw_only=True)
class ValueInfo:
    """One graph input or output."""

    name: str
    dtype: DType
    shape: Shape


@dataclass(frozen=True, kw_only=True)
class Signature:
    """All graph inputs and outputs, in the order of the declaration."""

    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]


def signature(spec: OpSpec, model: Model) -> Signature:
    """Return the signature that a model must have in every exporter and opset."""
    shapes = {i.name: _input_shape(model, i.name) for i in spec.inputs}

    def value_info(name: str, declared: str, shape: Shape) -> ValueInfo:
        return ValueInfo(name=model.names.get(name, name), dtype=dtype_of(declared, model.types), shape=shape)

    return Signature(
        inputs=tuple(value_info(i.name, i.type, shapes[i.name]) for i in spec.inputs),
        outputs=tuple(value_info(o.name, o.type, _output_shape(o, shapes)) for o in spec.outputs),
    )


def _input_shape(model: Model, name: str) -> Shape:
    sizes = shape_of(model.cases[0].inputs[name])
    axes = model.dynamic.get(name, (None,) * len(sizes))
    return tuple(size if axis is None else axis for size, axis in zip(sizes, axes, strict=True))


def _output_shape(output: Output, shapes: Mapping[str, Shape]) -> Shape:
    if not isinstance(output.shape, SameAs):
        raise ValueError(f"output {output.name!r} has a shape rule that is not supported yet")
    return shapes[output.shape.input]
