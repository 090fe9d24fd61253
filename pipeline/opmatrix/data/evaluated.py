"""Cases with their data, and the reference evaluated with one of its arguments replaced: a wrong kernel."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from opmatrix.basics import step_log
from opmatrix.basics.errors import DataError
from opmatrix.data import case_arrays, dataset
from opmatrix.data.arrays import Array, dtype_name
from opmatrix.data.compare import compare
from opmatrix.data.dataset import DataSet
from opmatrix.data.reference import Argument, Reference
from opmatrix.declaration.models import case_arguments
from opmatrix.signature.signature import is_off
from opmatrix.sizes.variadic import flat, nested, of_model, variadic_output
from opmatrix.spec import AttributeValue, Case, Model, OpSpec, Output, Tolerance

Tolerances = Mapping[str, Tolerance]


def loosest(spec: OpSpec) -> dict[str, Tolerance]:
    """Return for each dtype of an output the largest rtol and the largest atol of all lowerings."""
    tolerances: dict[str, Tolerance] = {}
    for lowering in spec.lowerings:
        for dtype, one in spec.tolerances[lowering].items():
            other = tolerances.get(dtype, one)
            tolerances[dtype] = Tolerance(rtol=max(one.rtol, other.rtol), atol=max(one.atol, other.atol))
    return tolerances


@dataclass(frozen=True, kw_only=True)
class EvaluatedCase:
    """A case with its data set, and what the reference computes for it and for other arguments."""

    spec: OpSpec
    model: Model
    case: Case
    folder: Path
    reference: Reference
    tolerances: Tolerances

    @cached_property
    def elements(self) -> int:
        """The number of elements of its inputs."""
        return sum(case_arrays.elements(self.case))

    @cached_property
    def data(self) -> DataSet:
        return dataset.read(self.folder)

    @cached_property
    def expected(self) -> tuple[Array, ...]:
        """The expected outputs, in the order of the declaration, empty where there is none."""
        made = iter(self.data.outputs.values())
        absent, parts = np.empty(0), of_model(self.spec, self.model).outputs
        return tuple(absent if part.name in self.model.absent else next(made) for part in parts)

    def has(self, output: Output) -> bool:
        """Return whether the case has expected values of an output, which may be optional."""
        return output.name not in self.model.absent and not is_off(self.spec, output, self.attributes)

    @cached_property
    def arguments(self) -> dict[str, Argument]:
        """The arguments of the reference, by the names of inputs."""
        found = case_arguments(self.spec, self.case, [*self.data.inputs.values()])
        return dict(zip((part.name for part in self.spec.inputs), found, strict=True))

    @cached_property
    def attributes(self) -> dict[str, AttributeValue]:
        return case_arrays.reference_attributes(self.spec, self.model)

    @cached_property
    def right(self) -> tuple[Array, ...]:
        """What the reference computes for the case itself, in the same precision as for other arguments."""
        return self._outputs(self.arguments, self.attributes)

    def fails_with(self, what: str, /, **replaced: Argument | AttributeValue) -> bool:
        """Return whether a kernel that computes with other inputs or attributes fails in this case: some output differs
        by more than the tolerance. `what` describes the replacement, for the log. Raises DataError where the reference
        raises for the replacement."""
        step_log.now_running(f"case {self.case.name} with {what}")
        arguments = {name: replaced.get(name, argument) for name, argument in self.arguments.items()}
        attributes = {name: replaced.get(name, value) for name, value in self.attributes.items()}
        wrong = self._outputs(arguments, attributes)  # type: ignore[arg-type]  # `replaced` has both by their names
        if len(wrong) != len(self.right):  # of a variadic output another number of tensors
            return True
        pairs = zip(wrong, self.right, strict=True)
        return any(not compare(w, r, tolerance=self.tolerances[dtype_name(r)]).ok for w, r in pairs)

    def _outputs(
        self, arguments: Mapping[str, Argument], attributes: Mapping[str, AttributeValue]
    ) -> tuple[Array, ...]:
        """Return the outputs of the model. Raises DataError where the reference or `Model.around` raises."""
        given = tuple(arguments.values())

        def op(*inputs: Argument) -> Any:
            return nested(self.spec, self.reference(inputs, attributes))

        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as that for the mean of no element: the author did not write this
            if self.model.around is None:
                return self.reference(given, attributes)
            try:
                returned = self.model.around(op, *given)
            except Exception as error:  # a user's function may raise anything
                raise DataError(f"{self.model.around.__name__}() raises {type(error).__name__}: {error}") from error
        return as_outputs(self.spec, returned)


def as_outputs(spec: OpSpec, returned: Any) -> tuple[Array, ...]:
    """Return the outputs that `Model.around` returns, also each tensor of a variadic one."""
    if variadic_output(spec):
        return tuple(map(np.asarray, flat(returned)))
    return (np.asarray(returned),) if len(spec.outputs) == 1 else tuple(map(np.asarray, returned))


def names(cases: Sequence[EvaluatedCase]) -> str:
    """Return ``case plain``, or ``all 7 cases (plain, sliced, large, ...)``."""
    found = [one.case.name for one in cases]
    if len(found) == 1:
        return f"case {found[0]}"
    return f"all {len(found)} cases ({', '.join(found[:3])}{', ...' if len(found) > 3 else ''})"
