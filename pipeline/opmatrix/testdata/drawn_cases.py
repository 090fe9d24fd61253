"""Drawn cases with the reference's outputs: written by draw-inputs, read by the property test and ort-fuzz."""

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
    """A model with one case, its input arrays, and the expected outputs, or why the reference raises."""

    model: Model
    arrays: list[Array]
    expected: tuple[Array, ...] | None
    refusal: str


def evaluate(spec: OpSpec, model: Model, reference: Reference) -> DrawnCase:
    """Run the reference on a drawn model's case."""
    arrays = case_arrays(spec, model, model.cases[0])
    expected, refusal = reference_outputs(spec, model, reference, arrays)
    return DrawnCase(model=model, arrays=arrays, expected=expected, refusal=refusal)


def reference_outputs(
    spec: OpSpec, model: Model, reference: Reference, arrays: Sequence[Array]
) -> tuple[tuple[Array, ...] | None, str]:
    """Return the outputs of the reference and "", or None and its error."""
    try:
        return reference(tuple(case_arguments(spec, model.cases[0], arrays)), reference_attributes(spec, model)), ""
    except DataError as error:
        return None, str(error)


def write(path: Path, found: Sequence[DrawnCase]) -> None:
    write_bytes(path, pickle.dumps(list(found)))


def read(path: Path, operator: str) -> list[DrawnCase]:
    """Read what `write` wrote. Raises DataError for a missing or damaged file."""
    try:
        found: list[DrawnCase] = pickle.loads(path.read_bytes())
    except (FileNotFoundError, pickle.UnpicklingError, EOFError, AttributeError) as error:
        run = f"python -m opmatrix draw-inputs {operator}"
        raise DataError(missing(path, run=run, problem="is missing or damaged")) from error
    return found
