"""Read ops/<name>/bench.py, find its mistakes, and choose rows from cases.py where there is no bench.py."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping

from opmatrix.basics.errors import SpecError, UsageError, one_line, printable
from opmatrix.bench.spec import Bench, Function, OnnxModel, Peer, Row
from opmatrix.declaration import validation
from opmatrix.declaration.load import Operator, lines, take
from opmatrix.declaration.validation import Mistake
from opmatrix.declaration.validation.fields import duplicates, not_one_of
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import attribute_values
from opmatrix.sizes.known import Known
from opmatrix.sizes.variadic import shapes_by_input
from opmatrix.spec import Case, FromVectors, Model, OpSpec, Random, shape_of, tensors_of

_NAME = re.compile(r"[\w.-]{1,60}", re.ASCII)
# Of the names in `validation.cases`, those that a row does not have.
_INSIDE = re.compile(r"^MODELS\[(\d+)\](?:\.cases\[0\](?: \('[^']*'\))?)?")

_CALLABLES = ("function", "inputs", "outputs", "bytes", "flops")


def model_of(row: Row) -> Model:
    """Return a row as a model of one case, for functions that take models."""
    case = Case(name=row.name, inputs=row.inputs)
    return Model(name=row.name, types=row.types, attributes=row.attributes, cases=(case,))


def read(paths: Paths, operator: Operator) -> tuple[Bench, str]:
    """Return what to time, and its file. Raises SpecError with the mistakes in bench.py, UsageError
    where there is neither that file nor a case to time."""
    path = paths.bench(operator.name)
    if not path.is_file():
        source = str(paths.cases(operator.name).relative_to(paths.root))
        if not (found := default(operator)).rows:
            raise UsageError(
                f"{source} has no case to time: each is empty, has special values or those of a file, or its model has "
                f"`around` or `unsupported`. Write rows in {path.relative_to(paths.root)}"
            )
        return found, source
    found, wrong = take(paths, path, "BENCH", Bench, len)
    if found is not None and not wrong:
        # Of a builtin function, such as torch.relu, structure() says that it is none: here it is allowed.
        mistakes = [
            m
            for m in validation.structure(found, "BENCH")
            if m.field.rpartition(".")[2] not in _CALLABLES or not m.text.endswith("classes of opmatrix.spec")
        ]
        if all(mistake.usable for mistake in mistakes):
            mistakes += contradictions(paths, operator.spec, found)
        wrong = lines(paths, path, mistakes)
    if wrong:
        raise SpecError("\n".join(map(printable, wrong)))
    return found, str(path.relative_to(paths.root))


def default(operator: Operator) -> Bench:
    """Return a row for each combination of dtypes: its case with the most elements, without values that are given."""
    largest: dict[tuple[str, ...], tuple[int, Row]] = {}
    for model in operator.models:
        for case in model.cases:
            tensors = [tensor for name in case.inputs for tensor in tensors_of(case, name)]
            if any(isinstance(t, FromVectors) or (isinstance(t, Random) and t.specials) for t in tensors):
                continue
            if model.unsupported or model.around:
                continue
            count = sum(math.prod(shape_of(tensor)) for tensor in tensors)
            row = Row(name=case.name, types=model.types, inputs=case.inputs, attributes=model.attributes)
            key = tuple(str(model.types[name]) for name in sorted(model.types))
            if count > largest.get(key, (0, row))[0]:
                largest[key] = count, row
    return Bench(rows=tuple(row for _, row in largest.values()))


def contradictions(paths: Paths, spec: OpSpec, bench: Bench) -> Iterator[Mistake]:
    """Yield what contradicts the declaration in a Bench whose field types are correct."""
    if not bench.rows:
        yield Mistake("BENCH.rows", "found none, allowed: at least one Row")
    for twice in duplicates([row.name for row in bench.rows]):
        yield Mistake("BENCH.rows", f"two rows are named {twice!r}")
    for twice in duplicates([peer.name for peer in bench.peers]):
        yield Mistake("BENCH.peers", f"two peers are named {twice!r}")
    for index, row in enumerate(bench.rows):
        if not _NAME.fullmatch(row.name):
            allowed = "at most 60 letters, digits, '_', '.' and '-'"
            yield Mistake(f"BENCH.rows[{index}].name", f"found {row.name!r}, allowed: {allowed}")
    wrong = [*_cases(spec, bench)]
    yield from wrong
    for index, peer in enumerate(bench.peers):
        yield from _peer(paths, spec, bench, peer, f"BENCH.peers[{index}]")
    for field, row in itertools.product(("bytes", "flops"), () if wrong else bench.rows):
        try:
            cost(spec, row, getattr(bench, field))
        except ValueError as error:
            yield Mistake(f"BENCH.{field}", f"row {row.name!r}: {error}")


def _cases(spec: OpSpec, bench: Bench) -> Iterator[Mistake]:
    for mistake in validation.cases(spec, [model_of(row) for row in bench.rows]):
        # The others are of all models together, and of names, for which rows have rules of their own.
        if (found := _INSIDE.match(mistake.field)) and not mistake.field.endswith(".name"):
            yield Mistake(f"BENCH.rows[{found[1]}]{mistake.field[found.end() :]}", mistake.text)


def _peer(paths: Paths, spec: OpSpec, bench: Bench, peer: Peer, path: str) -> Iterator[Mistake]:
    if peer.name in OWN or not peer.name.isprintable() or not 0 < len(peer.name) <= 24:
        yield Mistake(f"{path}.name", f"found {peer.name!r}, allowed: 1 to 24 characters, and none of {', '.join(OWN)}")
    rows = [row.name for row in bench.rows]
    yield from (not_one_of(f"{path}.rows", name, rows) for name in peer.rows if name not in rows)
    if isinstance(peer, Function) and isinstance(peer.function, str) and not re.fullmatch(r"[\w.]+:\w+", peer.function):
        yield Mistake(f"{path}.function", f"found {peer.function!r}, allowed: a function, or 'module:function'")
    if isinstance(peer, OnnxModel) and not (paths.op(spec.name) / peer.path).is_file():
        yield Mistake(f"{path}.path", f"found {peer.path!r}, which is no file in ops/{spec.name}/")


def cost(spec: OpSpec, row: Row, given_as: object) -> float | None:
    """Return the bytes or FLOPs of a row, or None for None. Raises ValueError for what gives no number from 0 on."""
    if given_as is None:
        return None
    model = model_of(row)
    values = attribute_values(spec, model)
    case = model.cases[0]
    shapes = shapes_by_input((part, shape_of(tensor)) for part in spec.inputs for tensor in tensors_of(case, part.name))
    if callable(given_as):
        try:
            found = given_as(**{part.name: shapes.get(part.name) for part in spec.inputs}, **values)
        except Exception as error:  # a user's function may raise anything
            raise ValueError(f"the function raises {type(error).__name__}: {one_line(error)}") from error
    else:
        found = Known(spec=spec, shapes=shapes, attributes=values).size(str(given_as))
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < math.inf:
        raise ValueError(f"it gives {found!r}, allowed: a number from 0 on")
    return float(found)


OWN: Mapping[str, str] = {
    "torch library": "the operator in torch",
    "ORT library": "the operator in ONNX Runtime",
    "decomposed": "its decomposed lowering in ONNX Runtime",
    "reference": "the reference in torch, in eager mode",
    "reference compiled": "the reference in torch.compile",
}
"""The names that `doit bench` itself gives to what it times."""
