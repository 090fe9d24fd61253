"""Choose sizes for the open axes of a model's inputs, several for each, and find those that it does not take, and
outputs of other sizes than it says. Imports onnx alone.

One size proves nothing about others: an exporter may bake in that of its example, most often 1 or 2. So a model is run
until each open axis had two sizes of 3 and more. At first all sizes differ, then all are equal, then they are those of
images, of sequences and of the model's constants. No two tries share a size by which another one could be divided.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from opmatrix.addons.check.graph_walk import format_type, format_value, inputs, nodes
from opmatrix.addons.check.repair import is_external
from opmatrix.basics import finding
from opmatrix.basics.errors import one_line
from opmatrix.basics.finding import Finding
from opmatrix.data.dataset import to_array
from opmatrix.sizes.expressions import Size, Term, evaluate, parse, terms

QUESTION = "sizes"
_REMEDY = (
    "The size of the example is baked in: export the model with that axis dynamic, and take sizes from the tensor "
    "(Shape and Gather), not as numbers"
)
# Their weights fix sizes, whatever the model says of an input.
WITH_WEIGHTS = re.compile(r"Conv|MatMul|Gemm|LSTM|GRU|RNN|Norm|PRelu|Einsum|Attention")

Sizes = Mapping[str, int]
"""The size of each open axis, by its symbol."""
Dims = tuple[int | str, ...]
"""The shape that a model gives: numbers, symbols, and expressions of symbols such as ``past + 1``."""

_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59)
_SIDES = ((64, 32), (32, 224), (64, 64), (224, 224), (48, 192), (48, 320), (128, 256), (640, 640))
_LENGTHS = (16, 64, 128, 256, 512, 576, 1024, 2048)  # 512 and 576 are windows of audio
_CHANNELS = (3, 1, 4)
_CONSTANTS = 8  # sizes of constants that are tried
_MORE = 4  # tries after the first that the model computes with, before single sizes are changed
_OTHERS = 8  # other sizes of one axis
_NO_NAMES = {"", "none", "unk", "unknown"}


@dataclass(frozen=True, kw_only=True)
class Try:
    """The sizes with which the model was run, and the error of ONNX Runtime and `where`, such as " at Add 'a'", both
    "" where it computed with them."""

    sizes: Sizes
    error: str = ""
    where: str = ""


def dims(value: ValueInfoProto) -> Dims:
    """Return the shape that a model gives for an input or an output. An open axis without a name is its own symbol."""
    found: list[int | str] = []
    for axis, d in enumerate(value.type.tensor_type.shape.dim):
        if d.HasField("dim_value") and d.dim_value >= 0:  # some exporters write -1 for an open axis
            found.append(d.dim_value)
        elif any(c.isalpha() for c in d.dim_param) and d.dim_param.lower() not in _NO_NAMES:
            found.append(d.dim_param)
        else:
            found.append(f"size {axis} of {value.name!r}")
    return tuple(found)


def is_name(symbol: str) -> bool:
    """Return whether the model names an axis, so that an output may name it as well."""
    return not symbol.startswith("size ")


def size_of(dim: int | str, sizes: Sizes) -> int | None:
    """Return the size of an axis, None where it does not follow from `sizes`."""
    if isinstance(dim, int) or dim in sizes:
        return dim if isinstance(dim, int) else sizes[dim]

    def value(term: Term) -> Size:
        return sizes.get(term.key) if term.kind == "name" else None

    with suppress(SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        found = evaluate(parse(dim), value)
        return found if isinstance(found, int) else None
    return None


def open_symbols(wanted: Sequence[ValueInfoProto]) -> list[str]:
    """Return the symbols of the inputs in order, but for expressions of others."""
    found = list(dict.fromkeys(d for value in wanted for d in dims(value) if isinstance(d, str)))
    return [symbol for symbol in found if not _of_others(symbol, found)]


def _of_others(symbol: str, all_symbols: Sequence[str]) -> bool:
    with suppress(SyntaxError):
        keys = {term.key for term in terms(symbol)}
        return keys != {symbol} and keys <= {*all_symbols} and bool(keys)
    return False


def search(model: ModelProto, wanted: Sequence[ValueInfoProto], fixed: Sizes, tries: Sequence[Try]) -> Iterator[Sizes]:
    """Yield sizes to try, `fixed` ones among them, until each axis had two sizes with which the model computes, or no
    others are left. `tries`: what came of them; who tries the sizes appends it before the next ones."""
    symbols = [s for s in open_symbols(wanted) if s not in fixed]
    seen: list[Sizes] = []

    def computed() -> list[Sizes]:
        return [{symbol: tried.sizes[symbol] for symbol in symbols} for tried in tries if not tried.error]

    def attempt(sizes: Sizes) -> Generator[Sizes, None, bool]:
        if sizes not in seen:
            seen.append(sizes)
            yield {**fixed, **sizes}
        return sizes in computed()

    left = _MORE
    plans = list(_plans(model, wanted, symbols))
    for plan in plans:
        yield from attempt(plan)
        ran = computed()
        left -= bool(ran)
        if any(differ(ran[-1], other) for other in ran[:-1]) or (ran and not symbols):
            return
        if not left:
            break
    if not (ran := computed()):
        return
    base, changed = ran[0], dict(ran[0])
    for group in _groups(base):
        if all(changed[symbol] == base[symbol] for symbol in group):
            size = base[group[0]]
            others = dict.fromkeys(p[s] for s in group for p in plans if p[s] > 2)
            for other in (*islice(others, _OTHERS), 3, 4, 11, 64):
                if _is_other(other, size) and (yield from attempt({**base, **dict.fromkeys(group, other)})):
                    changed |= dict.fromkeys(group, other)
                    break
    yield from attempt(changed)


def differ(one: Sizes, other: Sizes) -> bool:
    """Return whether every axis has another size, of 2 and more."""
    return all(one[symbol] != other[symbol] and min(one[symbol], other[symbol]) > 1 for symbol in one)


def _is_other(size: int, base: int) -> bool:
    """Return whether a size is another one, and no multiple of the odd part of `base`, which may be baked in. Powers of
    two are those of networks that halve sizes."""
    odd = base // (base & -base)
    return size != base and (odd == 1 or bool(size % odd))


def _groups(base: Sizes) -> list[list[str]]:
    """Return the axes to change together: each alone, then those of one size, which may have to be equal."""
    by_size: dict[int, list[str]] = {}
    for symbol, size in base.items():
        by_size.setdefault(size, []).append(symbol)
    return [*([symbol] for symbol in base), *(group for group in by_size.values() if group[1:])]


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """Sizes by the meaning of axes: those of an image, or of a sequence and its `length`."""

    batch: int
    length: int
    sides: tuple[int, int] = (1, 1)
    channels: int = 1
    last: bool = False  # the channels of an image are its last axis

    def sizes(self, wanted: Sequence[ValueInfoProto], symbols: Sequence[str]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for value in wanted:
            shape = dims(value)
            for axis, dim in enumerate(shape):
                if dim in symbols and isinstance(dim, str):
                    sizes.setdefault(dim, self._size(axis, shape))
        return sizes

    def _size(self, axis: int, shape: Dims) -> int:
        rank = len(shape)
        if rank < 3 or (rank == 3 and not _is_image(shape, last=self.last)):
            return self.length if axis == rank - 1 else self.batch
        channel = rank - 1 if self.last else rank > 3
        if axis == channel:
            return self.channels
        width = rank - 2 if self.last else rank - 1
        return self.sides[1] if axis == width else self.batch if rank > 3 and not axis else self.sides[0]


def _plans(model: ModelProto, wanted: Sequence[ValueInfoProto], symbols: Sequence[str]) -> Iterator[dict[str, int]]:
    """Yield sizes of all axes, the most likely ones first."""
    shapes = [dims(value) for value in wanted]
    layouts = [last for last in (False, True) if any(_is_image(shape, last=last) for shape in shapes)]
    known = any(_channels(shape, last=last) for shape in shapes for last in layouts)
    images = [
        _Plan(batch=(3, 5)[n % 2], length=(7, 11)[n % 2], sides=sides, channels=channels, last=last)
        for last in layouts
        for channels in (_CHANNELS[:1] if known else _CHANNELS)
        for n, sides in enumerate(_SIDES if known else _SIDES[:3])
    ]
    small = [_Plan(batch=1, length=7, sides=p.sides, channels=p.channels, last=p.last) for p in images]
    primes = _primes()
    named = [dict(zip(symbols, primes, strict=False)) for _ in range(2)]  # different ones twice, then equal ones twice
    named += [dict.fromkeys(symbols, size) for size in (5, 7)]
    first = [p.sizes(wanted, symbols) for p in images]
    yield from [*first, *named] if known else [*named, *first]
    sequences = [_Plan(batch=batch, length=n, sides=(n, n)) for batch in (3, 1) for n in _LENGTHS]
    yield from (p.sizes(wanted, symbols) for p in sequences[: len(_LENGTHS)])
    prime = dict(zip(symbols, _primes(), strict=False))
    yield from ({**prime, symbol: n} for n in _constants(model) for symbol in reversed(symbols))
    yield from ({**prime, symbol: n} for n in (2, 1) for symbol in symbols)
    yield from (p.sizes(wanted, symbols) for p in [*small, *sequences[len(_LENGTHS) :]])


def _primes() -> Iterator[int]:
    yield from _PRIMES
    yield from range(_PRIMES[-1] + 2, 10**9, 2)


def _channels(shape: Dims, *, last: bool) -> bool:
    """Return whether a shape has the channels of an image as a number."""
    return len(shape) > 2 and shape[-1 if last else len(shape) > 3] in _CHANNELS


def _is_image(shape: Dims, *, last: bool) -> bool:
    """Return whether a shape may be that of images, or of a map of features, with open sides."""
    if len(shape) < 3:
        return False
    sides = shape[-3:-1] if last else shape[-2:]
    is_open = [isinstance(side, str) for side in sides]
    if _channels(shape, last=last):
        return all(is_open) if len(shape) == 3 else any(is_open)
    return len(shape) > 3 and all(is_open)


def _constants(model: ModelProto) -> list[int]:
    """Return the sizes of constants, and the numbers in those that may be shapes."""
    found: dict[int, None] = {}
    constants = [a.t for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"]
    for tensor in (*constants, *model.graph.initializer):
        found |= dict.fromkeys(tensor.dims)
        if tensor.data_type == TensorProto.INT64 and len(tensor.dims) == 1 and tensor.dims[0] <= 8:
            found |= {} if is_external(tensor) else dict.fromkeys(int(n) for n in to_array(tensor))
    return [n for n in found if 2 < n <= 4096][:_CONSTANTS]


def size_findings(model: ModelProto, tries: Sequence[Try]) -> Iterator[Finding]:
    """Yield the open axes for which the model takes one size alone, if it ran at all."""
    ran = [t.sizes for t in tries if not t.error]
    if not ran:
        return
    base = ran[0]
    varied = [s for s in base if len({t.sizes[s] for t in tries}) > 1]
    frozen = [s for s in varied if len({sizes[s] for sizes in ran if sizes[s] > 1} or {1}) == 1]
    for symbol in frozen:
        failed = [t for t in tries if t.error and t.sizes[symbol] != base[symbol]]
        if not failed:
            continue
        nearest = min(failed, key=lambda t: sum(t.sizes[s] != base[s] for s in base))
        only = " and ".join(map(str, sorted({sizes[symbol] for sizes in ran})))
        text = f"{_of(symbol)} is open, and the model runs with {only} alone: {_failed(nearest, [symbol])}"
        if _is_of_weights(model, nearest.error):
            yield finding.note(QUESTION, f"{text}. Its weights fix this size: the model could name it")
        else:
            yield finding.wrong(QUESTION, text, _REMEDY)
    only_varied = [{symbol: sizes[symbol] for symbol in varied} for sizes in ran]
    if varied and not frozen and not any(differ(a, b) for a in only_varied for b in only_varied):
        failed = [t for t in tries if t.error]
        nearest = max(failed, key=lambda t: sum(t.sizes[s] != base[s] for s in varied))
        text = f"{' and '.join(map(_of, varied))} are open, and the model does not run whenever all of them change"
        yield finding.wrong(QUESTION, f"{text}: {_failed(nearest, varied)}", _REMEDY)


def _of(symbol: str) -> str:
    return repr(symbol) if is_name(symbol) else symbol


def _failed(tried: Try, symbols: Sequence[str]) -> str:
    sizes = ", ".join(f"{s} = {tried.sizes[s]}" for s in symbols)
    why = re.sub(r"^.*Status Message: (/\S+:\d+ .* was false\. )?", "", one_line(tried.error))
    return f"with {sizes} it fails{tried.where}: {why[:300]}"


def _is_of_weights(model: ModelProto, error: str) -> bool:
    """Return whether a run fails at a node that multiplies its input with a constant; a first state is no weight."""
    if not (found := re.search(r"while running (\w+) node\. Name:'([^']*)'", error)) or "initial_" in error:
        return False
    constants = {t.name for t in model.graph.initializer}
    constants |= {o for n in model.graph.node if n.op_type == "Constant" for o in n.output}

    def weighted(node: NodeProto) -> bool:
        return any(name in constants for name in node.input[1:])

    named = [node for node in nodes(model) if node.name and node.name == found[2]]
    return bool(WITH_WEIGHTS.search(found[1])) and (not named or any(map(weighted, named)))


def output_findings(model: ModelProto, fed: Mapping[str, Any], values: Sequence[Any]) -> Iterator[Finding]:
    """Yield the outputs whose shapes contradict those that the model gives, with the sizes that its inputs have."""
    sizes = _bound(inputs(model), fed)
    for output, value in zip(model.graph.output, values, strict=True):
        if not output.type.tensor_type.HasField("shape") or not hasattr(value, "shape"):
            continue
        declared, actual = dims(output), tuple(value.shape)
        if len(declared) == len(actual):
            for dim, size in zip(declared, actual, strict=True):
                if isinstance(dim, str) and is_name(dim) and size_of(dim, sizes) is None:
                    sizes[dim] = size  # of outputs alone
        wanted = [size_of(dim, sizes) for dim in declared]
        if len(wanted) != len(actual) or any(w not in (None, n) for w, n in zip(wanted, actual, strict=True)):
            used = ", ".join(f"{s} = {n}" for s, n in sizes.items() if s in declared)
            text = f"the model says that output {output.name!r} is {format_type(output.type)}, and "
            yield finding.wrong(
                QUESTION, f"{text}{f'with {used} ' if used else ''}it is {format_value(value)}", _REMEDY
            )


def _bound(wanted: Sequence[ValueInfoProto], fed: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of the names of axes, but for those that have several."""
    found: dict[str, set[int]] = {}
    for value in wanted:
        for dim, size in zip(dims(value), getattr(fed[value.name], "shape", ()), strict=False):
            if isinstance(dim, str) and is_name(dim):
                found.setdefault(dim, set()).add(size)
    return {dim: next(iter(of)) for dim, of in found.items() if len(of) == 1}
