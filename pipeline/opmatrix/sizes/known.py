"""The sizes of one call: the values of size expressions, and the shapes of outputs, from shapes and attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from opmatrix.signature.signature import is_off
from opmatrix.sizes.expressions import FURTHER, Size, Term, evaluate, parse, terms
from opmatrix.sizes.rules import (
    definitions,
    further,
    further_input,
    kernel_dims,
    kernel_names,
    size_attributes,
    sizes_at,
)
from opmatrix.spec import AttributeValue, Dims, FromKernel, Input, OpSpec, Output, SameAs

Shape = Sequence[Size]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of one call: the shape of each present input, the first of a variadic one, and the attributes."""

    spec: OpSpec
    shapes: Mapping[str, Shape]
    attributes: Mapping[str, AttributeValue]

    def _attribute(self, name: str) -> AttributeValue:
        """Return the value of an attribute, None for one that the declaration does not have."""
        default = next((a.default for a in self.spec.attributes if a.name == name), None)
        return self.attributes.get(name, default)

    def size(self, expression: str | int) -> Size:
        """Return the value of an expression, None if it is not known, and the name of a dynamic size.

        Raises ValueError for an unknown name, an axis that an input lacks, a division by zero, and a negative size.
        """
        if isinstance(expression, int):
            return expression
        try:
            size = evaluate(parse(expression), self.term)
        except SyntaxError as error:
            raise ValueError(f"{expression!r} is not an expression of sizes") from error
        except ZeroDivisionError as error:
            raise ValueError(f"{expression!r} divides by zero with {self._shown(expression)}") from error
        if isinstance(size, int) and size < 0:
            raise ValueError(f"{expression!r} is {size} with {self._shown(expression)}")
        return size

    def term(self, term: Term) -> Size:
        """Return the value of a term, as `size` does."""
        match term.kind:
            case "name":
                return self._name(term.key)
            case "item":
                value = self._attribute(term.of)
                if not isinstance(value, tuple | list):  # exporters have lists
                    return None
                if not isinstance(term.at, int) or term.at >= len(value):
                    raise ValueError(f"{term.of} must have at least {int(term.at) + 1} items, got {len(value)}")
                return int(value[term.at])  # type: ignore[arg-type]  # of a list of ints
            case "rank":
                shape = self.shapes.get(term.of)
                return None if shape is None else len(shape)
            case "size":
                return self._size(term)
        sizes = self._further()
        known = [size for size in sizes or () if isinstance(size, int)]
        return math.prod(known) if sizes is not None and len(known) == len(sizes) else None

    def _further(self) -> list[Size] | None:
        """Return the sizes of "..." of an output, None where they are not known."""
        part = further_input(self.spec)
        return None if part is None or part.name not in self.shapes else further(part, self.shapes[part.name])

    def _name(self, name: str) -> Size:
        if name in (known := definitions(self.spec)):
            values = [evaluate(parse(one), self.term) for one in known[name]]
            return next((v for v in values if isinstance(v, str)), next((v for v in values if v is not None), None))
        if (attribute := size_attributes(self.spec).get(name)) is None or attribute.kind != "int":
            raise ValueError(f"no input that is there has the size {name!r}")
        value = self.attributes.get(name, attribute.default)
        return int(value) if isinstance(value, int) else None

    def _size(self, term: Term) -> Size:
        shape, axis = self.shapes.get(term.of), term.at
        if isinstance(axis, str):
            value = self._attribute(axis)
            if not isinstance(value, int) or shape is None:
                return None
            axis = _checked(value, shape, axis, term.of)
        return None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]

    def _shown(self, expression: str) -> dict[str, int]:
        values = {term.key: self.term(term) for term in terms(expression)}
        return {name: value for name, value in values.items() if isinstance(value, int)}

    def sizes_at(self, part: Input) -> list[tuple[int, str | int]]:
        """Return the axes of `Input.at` with their sizes. Raises ValueError for one that the input lacks."""
        axes = []
        for attribute, dim in sizes_at(part):
            self._size(Term(key=attribute, kind="size", of=part.name, at=attribute))
            axis = self._attribute(attribute)
            if isinstance(axis, int):
                axes.append((axis, dim))
        return axes

    def output(self, output: Output) -> list[Size] | None:
        """Return the shape of an output by its rule, None if its rank is not known. Raises ValueError as `size`."""
        if isinstance(output.optional, str) and is_off(self.spec, output, self.attributes):
            return [0]
        match output.shape:
            case SameAs(input=str(name), replace=replace) | FromKernel(input=str(name), replace=replace):
                decided = kernel_names(self.spec, output.shape)
                shape = self.shapes.get(name)
                if shape is None:
                    return None
                return self._replaced(name, shape, replace, lambda dim: None if dim in decided else self.size(dim))
            case Dims(dims=dims):
                sizes: list[Size] = []
                for dim in dims:
                    of_dim = self._further() if dim == FURTHER else [self.size(dim)]
                    if of_dim is None:
                        return None
                    sizes += of_dim
                return sizes
            case FromKernel() as rule:
                return [None if dim is None else self.size(dim) for dim in kernel_dims(self.spec, rule)]
        raise ValueError(f"output {output.name!r} has no shape rule")

    def kernel_axes(self, output: Output) -> list[tuple[int, str]]:
        """Return the axes of an output whose sizes only the kernel knows, with their names."""
        if not isinstance(rule := output.shape, FromKernel):
            return []
        names, dims = kernel_names(self.spec, rule), [*(rule.dims or ())]
        if rule.input is not None:
            dims = self._replaced(rule.input, [0] * len(self.shapes[rule.input]), rule.replace, str) or []
        return [(axis, str(dim)) for axis, dim in enumerate(dims) if dim in names]

    def _replaced(
        self,
        name: str,
        shape: Sequence[T],
        replace: Mapping[int | str, str | int | None],
        size: Callable[[str | int], T],
    ) -> list[T] | None:
        """Return a shape of an input with the `size` of each other axis; None: an axis is not known."""
        found, removed = list(shape), set[int]()
        for key, dim in replace.items():
            axis = self._attribute(key) if isinstance(key, str) else key
            if not isinstance(axis, int):
                return None
            axis = _checked(axis, shape, key, name) % len(shape)
            if dim is None:
                removed.add(axis)
            else:
                found[axis] = size(dim)
        return [size for axis, size in enumerate(found) if axis not in removed]


def _checked(axis: int, shape: Sequence[object], key: int | str, name: str) -> int:
    """Return an axis of the input `name`; `key` is what names it. Raises ValueError for one that it lacks."""
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"{key} must be an axis of {name}, which has {len(shape)} axes, got {axis}")
    return axis


def shape_text(shape: Sequence[Size]) -> str:
    """Return a shape with ? for a size that is not known."""
    return f"({', '.join('?' if size is None else str(size) for size in shape)}{',' * (len(shape) == 1)})"


def rule_text(rule: SameAs | Dims | FromKernel) -> str:
    """Return a shape rule as messages show it."""
    match rule:
        case SameAs(input=str(name), replace=replace) | FromKernel(input=str(name), replace=replace):
            changed = ", ".join(f"{'no ' if dim is None else ''}axis {key}{'' if dim is None else f' of {dim}'}"
                                for key, dim in replace.items())  # fmt: skip
            decided = " from the kernel" * isinstance(rule, FromKernel)
            return f"as input {name!r}" + (f" with {changed}{decided}" if changed else "")
        case Dims(dims=dims):
            return f"{dims}"
        case FromKernel(rank=rank, dims=None):
            return f"rank {rank}"
        case FromKernel(dims=dims):
            return f"{dims} from the kernel"
    raise ValueError(f"found {rule!r}, no shape rule")
