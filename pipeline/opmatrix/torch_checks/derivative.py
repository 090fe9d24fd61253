"""Compare backward() with the derivative of the reference for one sample, and in each dtype with float64.

A gradient is multiplied by a random direction, and compared with the change of the reference along it: two evaluations
for each input, however many elements it has. Only a difference is searched for element by element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from opmatrix.basics.errors import DataError, one_line
from opmatrix.data.case_arrays import reference_attributes
from opmatrix.signature.signature import dtype_of
from opmatrix.spec import Model
from opmatrix.torch_checks import backward_calls
from opmatrix.torch_checks.backward_calls import Gradients, Outputs, Problem, direction, elements, in_sample, largest
from opmatrix.torch_checks.case_calls import CaseCall, renamed
from opmatrix.torch_checks.gradient_samples import nudged, sample
from opmatrix.torch_checks.reference_operator import ReferenceGradient, ReferenceOperator, as_arrays
from opmatrix.torch_ops.case_tensors import arguments
from opmatrix.torch_ops.load import Gradient

STEP = 1e-6
RTOL, ATOL = 1e-4, 1e-7  # of a change along a direction, relative to the sum of all its parts
ROUNDING = 16 * 2.0**-53 / STEP  # of a change, relative to the outputs
ELEMENT_RTOL, ELEMENT_ATOL = 1e-3, 1e-5  # of one element, in the message
GIVEN_RTOL = 1e-6  # of a gradient that has its own reference; attributes are rounded to float32 there
# Of a gradient in each other dtype that a declaration may have, relative, and in roundings of the largest gradient: a
# formula in torch rounds each of its steps. A KeyError for a new dtype.
LOW = {torch.float32: (1e-3, 64), torch.float16: (1e-2, 8), torch.bfloat16: (8e-2, 4)}
CALLS = 4  # samples of the same inputs, with the same axes, for which backward() is called in other ways
REDRAWS = 2  # times a gradient in another dtype must differ with other random values as well

Describe = Callable[[], Problem]


@dataclass(kw_only=True)
class Outcome:
    """What one sample shows. `why_not` is why it shows nothing, "" if it does.

    `problem` describes the first fault. `effective` are the inputs whose derivative is not zero, `undecided` those at
    which the reference has no derivative that can be measured, `dtypes` the pairs of input and dtype that were checked.
    """

    sample: CaseCall | None = None
    why_not: str = ""
    problem: Describe | None = None
    effective: set[str] = field(default_factory=set)
    undecided: set[str] = field(default_factory=set)
    dtypes: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class _Slope:
    """The change along a random direction: by the gradient, and of the reference, by a step `up` and one `down`.

    `allowed` is how far the gradient's may be from the reference's, `least` what is no more than rounding, and `kink`
    how far the two steps differ, summed over the elements of the outputs: with ties in several, they differ to either
    side.
    """

    along: torch.Tensor
    actual: float
    up: float
    down: float
    kink: float
    least: float
    allowed: float

    @property
    def expected(self) -> float:
        return (self.up + self.down) / 2

    @property
    def is_kink(self) -> bool:
        return not self.kink <= self.allowed + 0.1 * max(abs(self.up), abs(self.down))  # NaN too

    @property
    def differs(self) -> bool:
        return not abs(self.actual - self.expected) <= self.allowed + self.kink


@dataclass(frozen=True, kw_only=True)
class Check:
    """What is the same for all samples of an operator. `own_reference` is that of the gradient, if it has one.

    `calls` counts the samples by the axes of their tensors for which backward() was called in other ways.
    """

    operator: ReferenceOperator
    gradient: Gradient
    own_reference: ReferenceGradient | None
    calls: Counter[tuple[int, ...]] = field(default_factory=Counter)

    def run(self, model: Model) -> Outcome:
        """Check the first case of a model."""
        outcome = Outcome()
        try:
            one = self._sample(model, exact=True)
        except DataError as error:
            outcome.why_not = f"no values: {one_line(error)}"
            return outcome
        outcome.sample = one
        if not one.derived:
            outcome.why_not = "no input takes a gradient"
            return outcome
        gradients = self._gradients(one, outcome, exact=True)
        if gradients is None:
            return outcome
        judge = self._compare_with_given if self.own_reference else self._compare_with_derivative
        judge(one, gradients, outcome)
        if outcome.problem is None:
            self._compare_calls(one, gradients, outcome)
        if outcome.problem is None:
            self._compare_dtypes(model, one, gradients, outcome)
        return outcome

    def _sample(self, model: Model, *, exact: bool) -> CaseCall:
        return sample(self.operator.spec, model, without=self.gradient.without, exact=exact)

    def _gradients(self, one: CaseCall, outcome: Outcome, *, exact: bool) -> Gradients | None:
        """Return outputs and gradients, or None with the reason in `outcome`."""
        self.operator.compute(exact=exact)
        leaves = one.leaves()
        try:
            outputs = one.call_derived(*leaves)
        except DataError:
            outcome.why_not = "the reference rejects it"
            return None
        except Exception as error:  # setup_context() is the user's
            text = f"setup_context() raises {type(error).__name__}: {one_line(error).rstrip('.')}"
            outcome.problem = partial(in_sample, one, text, exact=exact)
            return None
        floating = [o for o in outputs if o.is_floating_point()]
        if not all(bool(torch.isfinite(o).all()) for o in (*floating, *leaves)):
            outcome.why_not = "not finite"
            return None
        weights = [
            direction(o, seed=f"{one}/{n}") if o.requires_grad else torch.zeros_like(o)  # marked as not differentiable
            for n, o in enumerate(floating)
        ]
        try:
            found = backward_calls.backward(outputs, leaves, weights)
            text = next(mistakes(one, found, self.gradient, self.operator), "")
        except Exception as error:  # any exception of the user's backward()
            text = _raised(error)
        if text:
            outcome.problem = partial(in_sample, one, text, exact=exact)
            return None
        given = tuple(gradient for gradient in found if gradient is not None)
        return Gradients(leaves=leaves, outputs=outputs, weights=weights, by_leaf=given)

    def _compare_calls(self, one: CaseCall, gradients: Gradients, outcome: Outcome) -> None:
        """Compare with backward() for gradients of other strides, and for one input alone."""
        axes = tuple(leaf.dim() for leaf in gradients.leaves)
        if self.calls[axes] == CALLS or max(o.numel() for o in gradients.outputs) < 2:
            return
        self.calls[axes] += 1
        self.operator.compute(exact=True)
        try:
            text, differing = backward_calls.problem(one, gradients)
        except Exception as error:  # any exception of the user's backward()
            text, differing = f"with gradients of other strides, or for one input alone, {_raised(error)}", None
        if text:
            outcome.problem = partial(in_sample, one, text, exact=True, differing=differing)

    def _compare_with_derivative(self, one: CaseCall, gradients: Gradients, outcome: Outcome) -> None:
        for n, index in enumerate(one.derived):
            name = one.names[index]
            slope = self._slope(one, gradients, n)
            if slope is None or slope.is_kink:
                outcome.undecided.add(name)
            if slope is None or (slope.is_kink and not abs(slope.actual - slope.expected) > slope.allowed + slope.kink):
                continue
            if slope.differs:
                if self._jumps(one, gradients, n, slope) and self._agrees_beside(one, n):
                    outcome.undecided.add(name)
                    continue
                if outcome.problem is None:
                    outcome.problem = partial(self._describe, one, gradients, n, slope)
            if abs(slope.expected) > slope.least:
                outcome.effective.add(name)
            outcome.dtypes.add((name, "float64"))

    def _slope(self, one: CaseCall, gradients: Gradients, n: int) -> _Slope | None:
        """Return the change along a random direction of one input, or None where the domain of the reference ends."""
        gradient = gradients.by_leaf[n]
        along = direction(gradient, seed=f"{one}/{one.names[one.derived[n]]}/{one.derived[n]}")
        try:
            moved = self._moved(one, gradients, n, along)
        except DataError:
            return None
        up, down = gradients.slopes(moved, STEP)
        least, parts = ATOL + ROUNDING * gradients.size(), gradient * along
        expected = (up + down) / 2
        return _Slope(
            along=along,
            actual=float(parts.sum()),
            up=up,
            down=down,
            kink=gradients.bend(*moved) / STEP,
            least=least,
            allowed=least + RTOL * max(float(parts.abs().sum()), abs(expected)),
        )

    def _jumps(self, one: CaseCall, gradients: Gradients, n: int, slope: _Slope) -> bool:
        """Return whether the derivative is another one where what has no gradient moves by a millionth.

        Then there is a jump, and formula and reference may be on two sides of it, because each rounds in its own order.
        """
        for beside in nudged(one):
            try:
                changes = gradients.slopes(self._moved(beside, gradients, n, slope.along), STEP)
            except DataError:  # outside of the domain
                continue
            if abs(sum(changes) / 2 - slope.expected) > slope.allowed + slope.kink:
                return True
        return False

    def _agrees_beside(self, one: CaseCall, n: int) -> bool:
        """Return whether formula and reference agree where what has no gradient moved by a millionth, off the jump: in
        most places, since some may be at another jump, or no place can be judged."""
        agree = differ = 0
        for moved in nudged(one):
            gradients = self._gradients(moved, Outcome(), exact=True)
            slope = None if gradients is None else self._slope(moved, gradients, n)
            if slope is None or slope.is_kink:
                continue
            agree, differ = agree + (not slope.differs), differ + slope.differs
        return agree >= differ

    def _crossed(
        self, one: CaseCall, gradients: Gradients, n: int, low: torch.Tensor, allowed: torch.Tensor
    ) -> torch.Tensor:
        """Return where a gradient in another dtype is between those in float64 of inputs changed by a millionth.

        At a jump, roundings of that dtype may be on the other side of it.
        """
        least = most = gradients.by_leaf[n]
        for moved in nudged(one, leaves=True):
            other = self._gradients(moved, Outcome(), exact=True)
            if other and all(a.shape == b.shape for a, b in zip(other.outputs, gradients.outputs, strict=True)):
                least, most = torch.minimum(least, other.by_leaf[n]), torch.maximum(most, other.by_leaf[n])
        return (low >= least - allowed) & (low <= most + allowed)

    @torch.no_grad()
    def _moved(self, one: CaseCall, gradients: Gradients, n: int, along: torch.Tensor) -> list[Outputs]:
        """Return the outputs for a step up along a direction of one input, and for one down."""
        self.operator.compute(exact=True)
        moved = [leaf.detach() for leaf in gradients.leaves]
        return [one.call_derived(*moved[:n], moved[n] + by * along, *moved[n + 1 :]) for by in (STEP, -STEP)]

    def _describe(self, one: CaseCall, gradients: Gradients, n: int, slope: _Slope) -> Problem:
        """Return the message of a gradient that differs along a direction, with the derivative by single elements."""
        gradient, name = gradients.by_leaf[n], one.names[one.derived[n]]
        truth, kinks = torch.zeros_like(gradient), torch.zeros_like(gradient)
        for at in range(gradient.numel()):
            unit = torch.zeros_like(gradient)
            unit.reshape(-1)[at] = 1
            try:
                up, down = gradients.slopes(self._moved(one, gradients, n, unit), STEP)
            except DataError:
                up = down = float("nan")
            truth.reshape(-1)[at], kinks.reshape(-1)[at] = (up + down) / 2, abs(up - down)
        near = (gradient - truth).abs() <= ELEMENT_ATOL + ELEMENT_RTOL * truth.abs()
        differ = ~((gradient - truth).abs() <= ELEMENT_ATOL + ELEMENT_RTOL * truth.abs() + kinks)
        differing = None
        shown = (
            f"along a random direction the reference changes by {slope.expected:.6g}, "
            f"by the gradient it would by {slope.actual:.6g}"
        )
        if bool(differ.any()):
            shown = elements(gradient, truth, differ, "the numerical derivative is")
            judged = gradient.where(~differ & ~near, truth)  # at a kink nothing judges
            of = {"expected_is": "numerical derivative of the reference", "rtol": ELEMENT_RTOL, "atol": ELEMENT_ATOL}
            differing = gradients.differing(one, n, judged, **of)
        if not bool(truth.any()) and bool(gradient.any()):
            shown += (
                ". The reference does not depend on it there; a gradient that is not the derivative on purpose needs "
                f"NOT_A_DERIVATIVE and a reference of its own, {one.spec.name}_gradient()"
            )
        return in_sample(one, f"for {name!r} {shown}", exact=True, differing=differing)

    def _compare_with_given(self, one: CaseCall, gradients: Gradients, outcome: Outcome) -> None:
        """Compare with the gradient's own reference, element by element."""
        assert self.own_reference
        weights = iter(gradients.weights)
        grads = [as_arrays(next(weights)) if o.is_floating_point() else None for o in gradients.outputs]
        spec = self.operator.spec
        inputs = [as_arrays(value) for value in arguments(spec, one.case, one.with_derived(gradients.leaves))]
        expected = iter(_flat(self.own_reference(grads, inputs, reference_attributes(spec, one.model)), one))
        wanted = [next(expected) for _ in one.tensors]
        for n, index in enumerate(one.derived):
            name, value = one.names[index], wanted[index]
            if value is None:
                text = f"{spec.name}_gradient() in reference.py gives no gradient for {name!r}; backward() gives one"
                outcome.problem = partial(in_sample, one, text, exact=True)
                return
            truth = torch.as_tensor(value, dtype=torch.float64)
            most = GIVEN_RTOL * largest(truth)
            if not bool(torch.isfinite(truth).all()):
                outcome.undecided.add(name)
                continue
            differ = ~torch.isclose(gradients.by_leaf[n], truth, rtol=GIVEN_RTOL, atol=most)
            if bool(differ.any()):
                judge = f"{spec.name}_gradient()"
                text = f"for {name!r} {elements(gradients.by_leaf[n], truth, differ, judge)}"
                differing = gradients.differing(
                    one, n, truth.reshape(differ.shape), expected_is=judge, rtol=GIVEN_RTOL, atol=most
                )
                outcome.problem = partial(in_sample, one, text, exact=True, differing=differing)
                return
            if largest(truth):
                outcome.effective.add(name)
            outcome.dtypes.add((name, "float64"))

    def _compare_dtypes(self, model: Model, one: CaseCall, gradients: Gradients, outcome: Outcome) -> None:
        """Compare the gradients in the declared dtypes with those in float64 of the same inputs."""
        problem = self._problem_of_dtypes(model, one, gradients, outcome)
        for time in range(REDRAWS):  # a formula may lose digits in unlucky values, not in all
            if problem is None:
                return
            again, ignored = renamed(model, f"_again_{time}"), Outcome()
            try:
                other = self._sample(again, exact=True)
            except DataError:
                continue
            exact = self._gradients(other, ignored, exact=True)
            if exact is not None and self._problem_of_dtypes(again, other, exact, ignored) is None:
                return
        outcome.problem = problem

    def _problem_of_dtypes(
        self, model: Model, one: CaseCall, gradients: Gradients, outcome: Outcome
    ) -> Describe | None:
        declared = self._sample(model, exact=False)
        if all(t.dtype == torch.float64 for t in declared.tensors if t.is_floating_point()):
            return None
        given = Outcome()
        found = self._gradients(declared, given, exact=False)
        if found is None:
            return given.problem
        size = max([1.0, *map(largest, gradients.by_leaf)])
        for n, (index, low, exact) in enumerate(zip(one.derived, found.by_leaf, gradients.by_leaf, strict=True)):
            if low.dtype == torch.float64:
                continue
            name, limits = one.names[index], torch.finfo(low.dtype)
            if not bool(torch.isfinite(low).all()) and largest(exact) * size > limits.max**0.25:
                continue  # beyond the dtype on the way
            relative, roundings = LOW[low.dtype]
            rtol, atol = relative / 1.5, relative * largest(exact) / 1.5 + roundings * limits.eps * size
            allowed = rtol * exact.abs() + atol
            differ = ~((low.double() - exact).abs() <= allowed)
            dtype = dtype_of(next(i.type for i in self.operator.spec.inputs if i.name == name), model.types)
            if bool(differ.any()):
                differ = ~self._crossed(one, gradients, n, low.double(), allowed)
            if bool(differ.any()):
                shown = elements(low.double(), exact, differ, "in float64 it gives")
                text = f"in {dtype}, for {name!r}, {shown}; allowed: {relative:g} of the largest"
                most = {"rtol": rtol, "atol": atol, "actual_is": f"backward() in {dtype}"}
                judged = torch.where(differ, exact, low.double().where((low.double() - exact).abs() > allowed, exact))
                differing = found.differing(declared, n, judged, expected_is="backward() in float64", **most)
                differing = replace(differing, actual=low.double())
                return partial(in_sample, declared, text, exact=False, differing=differing)
            if one.names[index] in outcome.effective:
                outcome.dtypes.add((name, dtype))
        return None


def mistakes(
    one: CaseCall, grads: Sequence[torch.Tensor | None], gradient: Gradient, operator: ReferenceOperator
) -> Iterator[str]:
    """Yield a message for each derived tensor whose gradient is missing, given although WITHOUT_GRADIENT names the
    input, or of another dtype."""
    for index, grad in zip(one.derived, grads, strict=True):
        name = one.names[index]
        if grad is None and name not in gradient.without:
            yield f"it gives no gradient for {name!r}. Give one, or name it in WITHOUT_GRADIENT"
        elif grad is not None and name in gradient.without:
            yield f"it gives a gradient for {name!r}, which WITHOUT_GRADIENT names"
        elif problem := operator.wrong_dtype(name, one.tensors[index].dtype):
            yield problem


def _raised(error: Exception) -> str:
    return f"backward() raises {type(error).__name__}: {one_line(error).rstrip('.')}"


def _flat(gradients: Sequence[Any], one: CaseCall) -> list[Any]:
    """Return one gradient per tensor of the sample from one per input."""
    by_tensor: list[Any] = []
    for part, value in zip(one.spec.inputs, gradients, strict=True):
        count = one.names.count(part.name)
        by_tensor += list(value) if part.variadic and value is not None else [value] * count
    return by_tensor
