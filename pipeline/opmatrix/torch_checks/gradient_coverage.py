"""What the samples of the gradient check cover, and a note for each input, dtype, attribute and branch without one.

Keep a gradient that differs from the expected one: for the report, and for `save-case`, whose folder replays it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from opmatrix.data.arrays import Array
from opmatrix.data.compare import Pair
from opmatrix.judge import mismatch
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.signature.python_source import literal
from opmatrix.signature.signature import attribute_values, torch_qualified, torch_schema
from opmatrix.spec import Attribute, AttributeValue, Model, OpSpec, Tolerance, given
from opmatrix.torch_checks import backward_calls
from opmatrix.torch_checks.derivative import Check, Outcome
from opmatrix.torch_checks.gradient_message import Differing
from opmatrix.torch_checks.gradient_samples import GradSample, values
from opmatrix.torch_ops.call import torch_minor, with_attributes
from opmatrix.torch_ops.case_tensors import arguments, as_array
from opmatrix.torch_ops.load import Gradient

_SHOWN = 8  # values of an attribute in the record


class Coverage:
    """The outcomes of samples, added one by one."""

    def __init__(self, spec: OpSpec, gradient: Gradient) -> None:
        self._spec = spec
        self._taking = [
            i
            for i in spec.inputs
            if i.name not in gradient.without and any("float" in d for d in _dtypes(spec, i.type))
        ]
        self._models: list[Model] = []
        self._reasons: Counter[str] = Counter()
        self._effective: set[str] = set()
        self._measured: set[str] = set()
        self._undecided: set[str] = set()
        self._dtypes: set[tuple[str, str]] = set()

    def add(self, model: Model, outcome: Outcome) -> None:
        """Add a sample in which nothing is wrong."""
        if outcome.why_not:
            self._reasons[outcome.why_not.partition(":")[0]] += 1
            return
        if measured := {name for name, _ in outcome.dtypes}:
            self._models.append(model)
        self._measured |= measured
        self._effective |= outcome.effective
        self._undecided |= outcome.undecided
        self._dtypes |= {pair for pair in outcome.dtypes if pair[0] in outcome.effective}

    @property
    def samples(self) -> int:
        """The number of samples that show something."""
        return len(self._models)

    def described(self) -> dict[str, Any]:
        """Return what was covered, as a result of the record."""
        return {
            "samples": self.samples,
            "left_out": dict(sorted(self._reasons.items())),
            "inputs": sorted(self._effective),
            "dtypes": sorted(f"{name}: {dtype}" for name, dtype in self._dtypes),
            "attributes": {a.name: [*self._values(a)][:_SHOWN] for a in self._spec.attributes if [*self._values(a)]},
        }

    def notes(self) -> Iterator[str]:
        """Yield what no sample covers, with the remedy."""
        for part in self._taking:
            name = part.name
            if name not in self._effective:
                yield f"no sample covers {name}: {self._why(name)}"
                continue
            missing = [d for d in _dtypes(self._spec, part.type) if "float" in d and (name, d) not in self._dtypes]
            if missing:
                yield f"no sample covers {name} in {', '.join(missing)}. Add a small, finite case in each dtype"
        for part in self._spec.inputs:
            present = {bool(given(m.cases[0], part.name)) for m in self._models}
            if part.optional and len(present) == 1:
                lacking = "without" if present == {True} else "with"
                yield f"no sample is {lacking} {part.name}. Add a small, finite case {lacking} it"
        for attribute in self._spec.attributes:
            yield from self._unseen(attribute)

    def _why(self, name: str) -> str:
        if not any(given(m.cases[0], name) for m in self._models) and name not in self._undecided:
            return "no usable sample gives it. Add a small, finite case that does"
        if name in self._measured:
            return "its gradient is zero in every sample. Add a case in which it is not"
        return (
            "the reference has no derivative in any sample that can be measured. Does it compute in float32? Add a "
            "small case away from ties and limits"
        )

    def _values(self, attribute: Attribute) -> dict[AttributeValue, None]:
        found = (attribute_values(self._spec, m).get(attribute.name) for m in self._models)
        return dict.fromkeys(v for v in found if v is not None)

    def _unseen(self, attribute: Attribute) -> Iterator[str]:
        seen = self._values(attribute)
        if not self._models or attribute.kind == "tensor":
            return
        remedy = "Add a small, finite case with another"
        if attribute.kind == "bool" or attribute.allowed is not None:
            if lacking := [v for v in dict.fromkeys(values(attribute, ())) if v not in seen]:
                shown = ", ".join(map(literal, lacking))
                yield f"no sample has {attribute.name}={shown}. Add a small, finite case with each value"
        elif len(seen) == 1 and (attribute.minimum is None or attribute.minimum != attribute.maximum):
            yield f"every sample has {attribute.name}={literal(next(iter(seen)))}. {remedy}"


def _dtypes(spec: OpSpec, declared: str) -> Sequence[str]:
    return spec.types.get(declared, (declared,))


def keep(paths: Paths, check: Check, differing: Differing) -> None:
    """Write the record for the report, and the call for `save-case`, except that of a gradient by an operator: torch
    alone does not compute it."""
    one, name = differing.sample, verdict.name_case("gradient", differing.sample.case.name)
    pair = Pair(
        differing.actual_is,
        [as_array(differing.actual.detach())],
        differing.expected_is,
        [as_array(differing.expected.detach())],
        [Tolerance(rtol=differing.rtol, atol=differing.atol)],
    )
    saved = check.gradient.operator is None
    _write(paths, one, name, f"gradient of {_label(one, one.derived[differing.n])}", pair, saved=saved)
    if saved:
        path = paths.failing_case(one.spec.name, name).with_suffix(".pt")
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(_call(check, differing), path)


def keep_jacobians(paths: Paths, one: GradSample, numerical: Array, analytical: Array) -> None:
    """Write the record of a second derivative, of which torch's checks print the Jacobians alone."""
    pair = Pair(
        "analytical Jacobian", [analytical], "numerical Jacobian", [numerical], [Tolerance(rtol=1e-3, atol=1e-5)]
    )
    name = verdict.name_case("gradient", one.case.name)
    _write(paths, one, name, "Jacobian, by [element of the input, of the output]", pair, saved=False)


def _write(paths: Paths, one: GradSample, name: str, output: str, pair: Pair, *, saved: bool) -> None:
    path = paths.mismatches(paths.register_manifest(one.spec.name, "gradient", torch=torch_minor()))
    inputs = {_label(one, n): as_array(tensor.detach()) for n, tensor in enumerate(one.flat)}
    found = mismatch.of_case(one.spec, one.model, name, inputs, [output], [pair])
    verdict.write_mismatches(path, [{**found, "saved": saved}] if found else [])


def _label(one: GradSample, index: int) -> str:
    """Return the name of a tensor of a sample: ``x``, or ``others_1`` for a variadic input."""
    name = one.names[index]
    return f"{name}_{one.names[:index].count(name)}" if one.names.count(name) > 1 else name


def _call(check: Check, differing: Differing) -> dict[str, Any]:
    """Return the call as `torch.load(weights_only=True)` reads it: tensors keep their strides. `calls` are those of the
    kernel, which the formula may call, too."""
    one, found = differing.sample, dict[str, Any]()

    def called(*positional: Any, **keywords: Any) -> None:
        found.update(positional=list(positional), keywords=keywords)

    flat = one.with_derived(differing.leaves)
    with_attributes(called, one.spec, one.model)(*arguments(one.spec, one.case, flat))
    return {
        "name": torch_qualified(one.spec),
        "schema": torch_schema(one.spec),
        **found,
        "leaves": list(differing.leaves),
        "calls": _calls(check, differing),
        "weights": list(differing.weights),
        "leaf": differing.n,
        "of": _label(one, one.derived[differing.n]),
        "expected": differing.expected.detach(),
        "expected_is": differing.expected_is,
        "rtol": differing.rtol,
        "atol": differing.atol,
    }


def _calls(check: Check, differing: Differing) -> list[dict[str, Any]]:
    """Return the calls of the reference while the gradient is computed."""
    kernel, leaves = check.operator.kernel, differing.leaves
    kernel.exact = all(leaf.dtype == torch.float64 for leaf in leaves)
    found: list[dict[str, Any]] = []
    kernel.calls = found
    try:
        outputs = differing.sample.call_for_all(*leaves)
        backward_calls.backward(outputs, [leaves[differing.n]], differing.weights)
    finally:
        kernel.calls = None
    return found
