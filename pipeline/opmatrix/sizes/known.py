"""The sizes of one call: the values of size expressions, and the shapes of outputs, from shapes and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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

    @cached_property
    def _definitions(self) -> Mapping[str, tuple[str, ...]]:
        return definitions(self.spec)

    def size(self, expression: str | int) -> Size:
        """Return the value of an expression, None if it is not known, and the name of a dynamic size.

        Raises ValueError for an unknown name, an axis that an input lacks, a division by zero, and a negative size.
        """
        if isinstance(expression, int):
            return expression
        try:
            found = evaluate(parse(expression), self.term)
        except SyntaxError as error:
            raise ValueError(f"{expression!r} is not an expression of sizes") from error
        except ZeroDivisionError as error:
            raise ValueError(f"{expression!r} divides by zero with {self._shown(expression)}") from error
        if isinstance(found, int) and found < 0:
            raise ValueError(f"{expression!r} is {found} with {self._shown(expression)}")
        return found

    def term(self, term: Term) -> Size:
        """Return the value of a term, as `size` does."""
        match term.kind:
            case "name":
                return self._name(term.key)
            case "item":
                return self._item(term)
            case "rank":
                shape = self.shapes.get(term.of)
                return None if shape is None else len(shape)
            case "size":
                return self._size(term)
        part = further_input(self.spec)
        shape = None if part is None else self.shapes.get(part.name)
        if part is None or shape is None:
            return None
        product: int | None = 1
        for size in further(part, shape):
            product = product * size if isinstance(size, int) and product is not None else None
        return product

    def _name(self, name: str) -> Size:
        if name in (known := self._definitions):
            values = [evaluate(parse(one), self.term) for one in known[name]]
            return next((v for v in values if isinstance(v, str)), next((v for v in values if v is not None), None))
        if (attribute := size_attributes(self.spec).get(name)) is None or attribute.kind != "int":
            raise ValueError(f"no input that is there has the size {name!r}")
        value = self.attributes.get(name, attribute.default)
        return int(value) if isinstance(value, int) else None

    def _item(self, term: Term) -> int | None:
        attribute = next(a for a in self.spec.attributes if a.name == term.of)
        value = self.attributes.get(term.of, attribute.default)
        if not isinstance(value, tuple | list):  # exporters have lists
            return None
        if not isinstance(term.at, int) or term.at >= len(value):
            raise ValueError(f"{term.of} must have at least {int(term.at) + 1} items, got {len(value)}")
        return int(value[term.at])  # type: ignore[arg-type]  # of a list of ints

    def _size(self, term: Term) -> Size:
        shape, axis = self.shapes.get(term.of), term.at
        if isinstance(axis, str):
            found = self.attributes.get(axis, next((a.default for a in self.spec.attributes if a.name == axis), None))
            if not isinstance(found, int) or shape is None:
                return None
            axis = found
            if not -len(shape) <= axis < len(shape):
                raise ValueError(f"{term.at} must be an axis of {term.of}, which has {len(shape)} axes, got {axis}")
        return None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]

    def _shown(self, expression: str) -> dict[str, int]:
        values = {term.key: self.term(term) for term in terms(expression)}
        return {name: value for name, value in values.items() if isinstance(value, int)}

    def sizes_at(self, part: Input) -> list[tuple[int, str | int]]:
        """Return the axes of `Input.at` with their sizes. Raises ValueError for one that the input lacks."""
        found = []
        for attribute, dim in sizes_at(part):
            self._size(Term(key=attribute, kind="size", of=part.name, at=attribute))
            axis = self.attributes.get(attribute, _default(self.spec, attribute))
            if isinstance(axis, int):
                found.append((axis, dim))
        return found

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
                return self._dims(dims)
            case FromKernel() as rule:
                return [None if dim is None else self.size(dim) for dim in kernel_dims(self.spec, rule)]
        raise ValueError(f"output {output.name!r} has no shape rule")

    def _dims(self, dims: Sequence[str | int]) -> list[Size] | None:
        found: list[Size] = []
        for dim in dims:
            if dim != FURTHER:
                found.append(self.size(dim))
                continue
            part = further_input(self.spec)
            shape = None if part is None else self.shapes.get(part.name)
            if part is None or shape is None:
                return None
            found += further(part, shape)
        return found

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
            axis = self.attributes.get(key, _default(self.spec, key)) if isinstance(key, str) else key
            if not isinstance(axis, int):
                return None
            if not -len(shape) <= axis < len(shape):
                raise ValueError(f"{key} must be an axis of {name}, which has {len(shape)} axes, got {axis}")
            axis %= len(shape)
            if dim is None:
                removed.add(axis)
            else:
                found[axis] = size(dim)
        return [size for axis, size in enumerate(found) if axis not in removed]


def _default(spec: OpSpec, name: str) -> AttributeValue | None:
    return next((a.default for a in spec.attributes if a.name == name), None)


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
