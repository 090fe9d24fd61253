"""The input arrays of a case, the attributes that reference.py is called with, and the state of a torch.Generator whose
next number is a given one, so that a case's seed comes from a generator."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from opmatrix.basics.errors import DataError
from opmatrix.data import arrays, ruled_values
from opmatrix.data.arrays import Array
from opmatrix.data.ruled_values import random_values
from opmatrix.declaration.models import GraphInput, graph_inputs
from opmatrix.signature.signature import as_float32, attribute_values, dtype_of
from opmatrix.sizes.values import known_numbers, ruled_inputs
from opmatrix.spec import AttributeValue, Case, FromVectors, Model, OpSpec, Random, shape_of, tensors_of


def case_arrays(spec: OpSpec, model: Model, case: Case) -> list[Array]:
    """Return one array per tensor of a case, as in its data set. Raises DataError for a wrong description."""
    return [case_array(spec, model, case, feed) for feed in graph_inputs(spec, model, case)]


def case_array(spec: OpSpec, model: Model, case: Case, feed: GraphInput) -> Array:
    """Return the values of one tensor of a case. Raises DataError for a wrong description.

    Random values obey the rule of their input; other values must.
    """
    name, dtype, rule = declared_name(feed), dtype_of(feed.part.type, model.types), feed.part.values
    seed = arrays.seed_of(spec.name, case.name, name)
    numbers = _numbers(spec, model, case) if rule else {}
    try:
        if rule and isinstance(feed.tensor, Random) and dtype != "string":
            array = random_values(feed.tensor, rule, numbers, dtype, seed_of=seed)
        else:
            array = arrays.array(feed.tensor, dtype, seed_of=seed)
        if why := ruled_values.problem(spec, feed.part, numbers, array):
            raise DataError(why)
    except DataError as error:
        raise DataError(f"input {name!r}: {error}") from error
    return array


def declared_name(feed: GraphInput) -> str:
    """Return the declared name of a tensor, which is not that of the graph: `Model.names` may rename an input and keep
    its values."""
    return f"{feed.part.name}_{feed.index}" if feed.part.variadic else feed.part.name


def broken_rule(spec: OpSpec, model: Model, case: Case, feed: GraphInput, array: Array) -> str:
    """Return how values break the rule of their input, or ""."""
    return ruled_values.problem(spec, feed.part, _numbers(spec, model, case), array) if feed.part.values else ""


def _numbers(spec: OpSpec, model: Model, case: Case) -> dict[str, float]:
    shapes = [(other.part, shape_of(other.tensor)) for other in graph_inputs(spec, model, case)]
    return known_numbers(spec, shapes, model.attributes)


def described(case: Case) -> bool:
    """Return whether cases.py has all values of a case, so that no file is read for them."""
    return not any(isinstance(tensor, FromVectors) for name in case.inputs for tensor in tensors_of(case, name))


def obeys(spec: OpSpec, model: Model) -> bool:
    """Return whether there are values for the shapes of a model of one case: no index is in an empty range."""
    if not any(True for _ in ruled_inputs(spec)):
        return True
    try:
        case_arrays(spec, model, model.cases[0])
    except DataError:
        return False
    return True


def elements(case: Case) -> list[int]:
    """Return the number of elements of each tensor of a case."""
    return [math.prod(shape_of(tensor)) for name in case.inputs for tensor in tensors_of(case, name)]


def small_and_finite(tensors: Sequence[Array], *, elements: int) -> bool:
    """Return whether every array has 1 to `elements` elements, all finite."""
    return all(0 < array.size <= elements and bool(np.isfinite(array).all()) for array in tensors)


def reference_attributes(spec: OpSpec, model: Model) -> dict[str, AttributeValue]:
    """Return every attribute of a model by its ONNX name, floats rounded to float32 as in ONNX."""
    values = attribute_values(spec, model)
    return {a.name: as_float32(a, values[a.name]) for a in spec.attributes if a.name in values}


# torch's generator of the CPU is the Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998), whose outputs are its
# words, tempered. The layout is that of aten/src/ATen/CPUGeneratorImpl.cpp, the same in torch 1.13 to 2.15.
_WORDS = 624
_BITS = 2**32 - 1


def generator_state(number: int, low: int, end: int | None) -> bytes:
    """Return the state with which ``random_(low, end)`` gives `number`; `end` None is 2**63.

    torch takes 64 bits, the first word above, or 32 bits for a small range; both are right.
    """
    size = (2**63 if end is None else end) - low
    offset = number % size if size == 2**64 else number - low  # torch adds no `low` to all 64 bits
    first, second = offset >> 32, offset & _BITS
    if size <= 2**32:
        first, second = offset, (offset - (offset << 32)) % size
    words = [_untempered(first), _untempered(second)] + [0] * (_WORDS - 2)
    # The seed, words left and whether it is seeded, the next word, and the words; no normal number is kept.
    return struct.pack(f"<QiiQ{_WORDS}Q", 0, _WORDS, 1, 0, *words).ljust(5056, b"\0")


def _untempered(output: int) -> int:
    """Return the word that MT19937 tempers to `output`."""
    word = output ^ output >> 18
    word ^= word << 15 & 0xEFC60000
    original = word
    for _ in range(4):
        original = word ^ (original << 7 & 0x9D2C5680)
    original &= _BITS
    word = original
    for _ in range(2):
        original = word ^ original >> 11
    return original
