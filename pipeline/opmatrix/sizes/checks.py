"""What a call must fulfil before its sizes can be computed. Each check uses only what those before it have checked.

Bindings, fake kernel and invalid calls render or evaluate these checks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from opmatrix.signature.signature import is_required
from opmatrix.sizes.expressions import Term, subtracts, terms
from opmatrix.sizes.rules import (
    axes,
    checked_axes,
    definitions,
    input_of,
    is_named,
    list_lengths,
    owners,
    required,
    resolved,
    size_items,
    sizes_at,
    sources,
)
from opmatrix.spec import Input, OpSpec


@dataclass(frozen=True, kw_only=True)
class ItemCheck:
    """A list of an attribute has at least `count` items, or `exactly` as many."""

    attribute: str
    count: int
    exactly: bool = False

    def __str__(self) -> str:
        return f"{'' if self.exactly else 'at least '}{self.count} item{'s' * (self.count > 1)}"


@dataclass(frozen=True, kw_only=True)
class AxisCheck:
    """An input has the axis `at`: a number, or the attribute that names it."""

    given: Input
    at: int | str


@dataclass(frozen=True, kw_only=True)
class SameShape:
    """An input has the shape of another one."""

    given: Input
    other: str


@dataclass(frozen=True, kw_only=True)
class ShapeCheck:
    """An input has the rank and the sizes of its `dims`.

    With `rank`, its rank is compared with the number of `dims`. `sizes` are the axes to compare, each with its size: a
    number, or the attribute that names the axis.
    `positive` are names whose values follow from this input, and must not be negative. `rank_name` is the name that its
    rank must be equal to. `others` are the terms that do not come from this input.
    """

    given: Input
    rank: bool
    sizes: tuple[tuple[int | str, str | int], ...] = ()
    positive: tuple[str, ...] = ()
    rank_name: str | None = None
    others: tuple[Term, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TieCheck:
    """An axis of an input that may be absent has the size of an axis of another one, or of its own first tensor."""

    given: Input
    at: int
    name: str
    other: Input
    axis: int


@dataclass(frozen=True, kw_only=True)
class SameFurther:
    """The "..." of an input has the sizes of that of another one."""

    given: Input
    other: Input


@dataclass(frozen=True, kw_only=True)
class OptionalCheck:
    """An axis of an input that may be absent has a size that is computed from `names`, which only inputs have that may
    be absent too: `others`. It holds where all of them are present."""

    given: Input
    at: int
    dim: str
    names: tuple[Term, ...]
    others: tuple[Input, ...]


SizeCheck = ItemCheck | AxisCheck | SameShape | SameFurther | ShapeCheck | TieCheck | OptionalCheck


def size_checks(spec: OpSpec) -> Iterator[SizeCheck]:
    """Yield the checks; a size is compared with the first required input that has its name."""
    for name, count in size_items(spec).items():
        yield ItemCheck(attribute=name, count=count, exactly=name in list_lengths(spec))
    yield from _Checks(spec=spec).checks()


@dataclass(kw_only=True)
class _Checks:
    spec: OpSpec
    ranked: set[str] = field(default_factory=set)  # the inputs whose rank is checked already
    with_axes: set[str] = field(default_factory=set)  # the inputs whose axes are checked already

    def checks(self) -> Iterator[SizeCheck]:
        for given in self.spec.inputs:
            if given.same_as is not None:
                yield SameShape(given=given, other=given.same_as)
            if given.dims is not None or given.rank is not None:
                yield from self._sources(given)
                yield from self._shape(given)
            if given.further_as is not None:
                yield SameFurther(given=given, other=input_of(self.spec, given.further_as))
            yield from self._axes(given)
            for attribute, dim in sizes_at(given):
                names = [t for t in terms(dim) if {*sources(self.spec, t)} != {given.name}]
                others = (Term(key=attribute, kind="name", of=attribute), *names)
                yield ShapeCheck(given=given, rank=False, sizes=((attribute, dim),), others=others)
            yield from self._ties(given)

    def _sources(self, given: Input) -> Iterator[SizeCheck]:
        """Yield the checks of the rank of later inputs whose sizes the checks of this one read."""
        sizes = (*axes(given), *sizes_at(given))
        used = [name for _, dim in sizes for term in terms(dim) for name in sources(self.spec, term)]
        for other in required(self.spec):
            if other.name in used and other is not given:
                if other.dims is not None and other.name not in self.ranked:
                    yield ShapeCheck(given=other, rank=True)
                self.ranked.add(other.name)
                yield from self._axes(other)

    def _shape(self, given: Input) -> Iterator[SizeCheck]:
        known = definitions(self.spec)
        sizes: list[tuple[int, str | int]] = []
        positive: list[str] = []
        others: dict[str, Term] = {}
        rank_name = given.rank if given.rank and known[given.rank][0] != f"{given.name}.rank" else None
        if rank_name is not None:
            others[rank_name] = Term(key=rank_name, kind="name", of=rank_name)
        for at, dim in axes(given):
            if isinstance(dim, str):
                if self._gives(dim, given, at) or self._of_optional(dim):
                    continue
                solved = [name for name in _names(dim) if self._follows(name, given, at)]
                if solved:
                    meant = resolved(self.spec, solved[0])
                    positive += solved if subtracts(meant) else []
                    if not any(isinstance(part, ast.FloorDiv) for part in ast.walk(meant)):
                        continue  # the size gives the name, so they agree
                others |= {t.key: t for t in terms(dim) if {*sources(self.spec, t)} != {given.name}}
            sizes.append((at, dim))
        rank = given.dims is not None and given.name not in self.ranked
        self.ranked.add(given.name)
        if rank or sizes or positive or rank_name:
            yield ShapeCheck(
                given=given, rank=rank, sizes=tuple(sizes), positive=tuple(positive), rank_name=rank_name,
                others=tuple(others.values()),
            )  # fmt: skip

    def _gives(self, dim: str, given: Input, at: int) -> bool:
        """Return whether a name is the size of this axis by definition, or no required input has it."""
        if not dim.isidentifier() or dim not in (known := definitions(self.spec)):
            return False
        return known[dim][0] == f"{given.name}.shape[{at}]" or self._is_optional(dim)

    def _is_optional(self, name: str) -> bool:
        """Return whether only inputs that may be absent have a size of this name."""
        found = sources(self.spec, Term(key=name, kind="name", of=name))
        return bool(found) and not {*found} <= {i.name for i in required(self.spec)}

    def _of_optional(self, dim: str) -> list[Input]:
        """Return the inputs that may be absent and alone have names in an expression."""
        used = [name for name in _names(dim) if name in definitions(self.spec) and self._is_optional(name)]
        names = [owners(self.spec)[name][0] for name in used]
        return [part for part in self.spec.inputs if part.name in names]

    def _follows(self, name: str, given: Input, at: int) -> bool:
        """Return whether the value of a name is computed from this axis."""
        found = definitions(self.spec).get(name)
        size = f"{given.name}.shape[{at}]"
        return found is not None and name not in owners(self.spec) and size in {t.key for t in terms(found[0])}

    def _axes(self, given: Input) -> Iterator[SizeCheck]:
        if given.name not in self.with_axes:
            self.with_axes.add(given.name)
            yield from (AxisCheck(given=given, at=at) for name, at in checked_axes(self.spec) if name == given.name)

    def _ties(self, given: Input) -> Iterator[SizeCheck]:
        """Yield the comparisons of sizes that only inputs have that may be absent."""
        if is_required(given):
            return
        for at, dim in axes(given):
            if isinstance(dim, str) and (others := self._of_optional(dim)):
                yield OptionalCheck(
                    given=given, at=at, dim=dim, others=tuple(other for other in others if other is not given),
                    names=tuple(t for t in terms(dim) if {*sources(self.spec, t)} != {given.name}),
                )  # fmt: skip
            if not isinstance(dim, str) or not is_named(self.spec, dim) or not self._is_optional(dim):
                continue
            for other in self.spec.inputs[: self.spec.inputs.index(given) + 1]:
                for axis, size in axes(other):
                    if size == dim and (other is not given or axis < at or given.variadic):
                        yield TieCheck(given=given, at=at, name=dim, other=other, axis=axis)


def _names(dim: str) -> list[str]:
    return [] if dim.isidentifier() else [term.key for term in terms(dim) if term.kind == "name"]


def owner(spec: OpSpec, term: Term) -> str:
    """Return the input that a term is computed from, as messages name it; "" for an attribute."""
    return next(iter(sources(spec, term)), "")
