"""Drawn inputs with what the reference says to them: made once, tried by every kernel."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opmatrix.declaration.model_inputs import case_arguments
from opmatrix.errors import DataError, missing
from opmatrix.files import write_bytes
from opmatrix.spec import Model, OpSpec
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.case_arrays import case_arrays, reference_attributes
from opmatrix.testdata.numpy_reference import Reference


@dataclass(frozen=True, kw_only=True)
class DrawnCase:
    """A model with one case, its numbers, and the expected outputs, or why the reference refuses them."""

    model: Model
    numbers: list[Array]
    expected: tuple[Array, ...] | None
    refusal: str


def evaluate(spec: OpSpec, model: Model, reference: Reference) -> DrawnCase:
    """Compute what a drawn model is held against."""
    numbers = case_arrays(spec, model, model.cases[0])
    expected, refusal = answer(spec, model, reference, numbers)
    return DrawnCase(model=model, numbers=numbers, expected=expected, refusal=refusal)


def answer(
    spec: OpSpec, model: Model, reference: Reference, numbers: Sequence[Array]
) -> tuple[tuple[Array, ...] | None, str]:
    """Return the outputs of the reference, or None and why it gives none."""
    try:
        return reference(tuple(case_arguments(spec, model.cases[0], numbers)), reference_attributes(spec, model)), ""
    except DataError as error:
        return None, str(error)


def write(path: Path, found: Sequence[DrawnCase]) -> None:
    """Write what `read` reads."""
    write_bytes(path, pickle.dumps(list(found)))


def read(path: Path, operator: str) -> list[DrawnCase]:
    """Raises DataError for a missing or damaged file."""
    try:
        found: list[DrawnCase] = pickle.loads(path.read_bytes())
    except (FileNotFoundError, pickle.UnpicklingError, EOFError, AttributeError) as error:
        run = f"python -m opmatrix draw-inputs {operator}"
        raise DataError(missing(path, run=run, problem="is missing or damaged")) from error
    return found
