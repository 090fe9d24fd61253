"""What the samples of the gradient check cover, and a note for each input, dtype, attribute and branch without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from opmatrix.declaration.python_source import literal
from opmatrix.declaration.torch_signature import attribute_values
from opmatrix.spec import Attribute, AttributeValue, Model, OpSpec, given
from opmatrix.torch_checks.derivative import Outcome
from opmatrix.torch_checks.gradient_samples import values
from opmatrix.torch_library.user_python import Gradient

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
