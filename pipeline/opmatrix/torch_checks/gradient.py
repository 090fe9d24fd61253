"""The "gradient" part of register: compare backward() of torch_op.py with derivatives of reference.py, and with itself
in the declared dtypes. Note what no sample covers, and keep a gradient that differs, for the report and `save-case`.

Small cases go through torch's gradcheck and gradgradcheck; further samples (`gradient_samples`), with every dtype and
attribute that the declaration allows, through `derivative`. Of an operator that computes the gradient, its reference is
the formula. No kernel is used, so that an edit of one does not run the check again; opcheck tests what is compiled.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from opmatrix.basics import step_log
from opmatrix.basics.errors import DataError, RegisterError, one_line
from opmatrix.data.case_arrays import case_arrays, described, small_and_finite
from opmatrix.data.compare import Pair
from opmatrix.declaration.backward_operator import backward_of
from opmatrix.declaration.load import Operator
from opmatrix.judge import mismatch
from opmatrix.project.dtypes import FLOAT8
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.search import drawn as drawn_cases
from opmatrix.signature.python_source import literal
from opmatrix.signature.signature import attribute_values, model_dtypes, torch_qualified, torch_schema
from opmatrix.spec import Attribute, AttributeValue, Model, OpSpec, Tolerance, tensors_of
from opmatrix.torch_checks import gradient_samples
from opmatrix.torch_checks.backward_calls import Differing, backward
from opmatrix.torch_checks.case_calls import CaseCall
from opmatrix.torch_checks.derivative import Check, Outcome, mistakes
from opmatrix.torch_checks.gradient_samples import sample, values
from opmatrix.torch_checks.reference_operator import ReferenceGradient, ReferenceOperator
from opmatrix.torch_ops import load
from opmatrix.torch_ops.call import torch_minor, with_attributes
from opmatrix.torch_ops.case_tensors import as_array
from opmatrix.torch_ops.load import Gradient

ENOUGH = 60  # further samples that are accepted
SECONDS = 2.0  # CPU seconds of further samples, those that bring something new first
SMALL = 1000  # elements of one tensor, in gradcheck's fast mode
TINY = 64  # elements of all tensors, up to which gradcheck varies each
RTOL, ATOL = 1e-3, 1e-5  # gradcheck's defaults
_FEW = 4  # elements in the message
_MOST = 20_000  # elements of a matrix that torch prints whole

# In fast mode the second pair has the matrices, the first two sums.
_INPUT = re.compile(r"Jacobian mismatch for output \d+ with respect to input (\d+)")
_PAIR = re.compile(
    r"numerical:\s*tensor\((.*?)\)\s*analytical:\s*tensor\((.*?)\)\s*(?=\n|$)", re.DOTALL | re.IGNORECASE
)
_ROW = re.compile(r"\[([^\[\]]*)\]")


def results(paths: Paths, operator: Operator) -> list[dict[str, Any]]:
    """Return the checks that passed: none for an operator defined in Python without backward(). Prints what no sample
    covers.

    Raises RegisterError for the first case that fails, and for a torch_op.py that should have backward() and has none.
    """
    spec, gradient = operator.spec, load.gradient(paths, operator.spec)
    if gradient is None:
        if spec.torch and spec.torch.python:
            return []
        raise RegisterError(
            f"ops/{spec.name}/torch_op.py: no backward(); a gradient takes setup_context() and backward()"
        )
    drawn = [one.model for one in drawn_cases.read(paths.drawn_inputs(spec.name), spec.name)]
    drawn = [model for model in drawn if not {*FLOAT8} & {*model_dtypes(spec, model)}]
    reference = ReferenceGradient(paths, spec, declared=bool(gradient.not_a_derivative))
    defined = ReferenceOperator(paths, spec, gradient)
    own_reference = reference if gradient.not_a_derivative else None
    defined.compute(exact=True)
    proved: list[dict[str, Any]] = []
    further = Check(operator=defined, gradient=gradient, own_reference=own_reference)
    coverage = Coverage(spec, gradient)
    # Stop at the first failure: to describe one takes seconds.
    for one in () if own_reference else _samples(operator, gradient):
        proved += _check(paths, further, one)
    _check_further(paths, further, operator, drawn, coverage)
    if not proved and not coverage.samples:
        raise RegisterError(
            f"{spec.name}: no case to check its gradient with. Add one to cases.py that is finite, and has "
            f"at most {gradient_samples.SMALL} elements in each tensor"
        )
    compared = {"not_a_derivative": gradient.not_a_derivative} if own_reference else {}
    proved.append({"check": "samples", **compared, **coverage.described()})
    for note in coverage.notes():
        print(f"{spec.name}: gradient: {note}")
        proved.append({"check": "samples", "note": note})
    return proved


def _check_further(paths: Paths, check: Check, operator: Operator, drawn: list[Model], coverage: Coverage) -> None:
    """Check the further samples. Raises RegisterError for the smallest of those that are wrong."""
    wrong: list[Outcome] = []
    begin = time.process_time()
    for model in gradient_samples.models(operator, drawn):
        if coverage.samples >= ENOUGH or time.process_time() - begin > SECONDS:
            break
        step_log.now_running(f"the gradient for case {model.cases[0].name}")
        outcome = check.run(model)
        if outcome.problem:
            wrong.append(outcome)
        else:
            coverage.add(model, outcome)
    if wrong:
        smallest = min(wrong, key=lambda o: sum(t.numel() for t in o.sample.tensors) if o.sample else 0)
        assert smallest.sample and smallest.problem
        text, differing = smallest.problem()
        if differing:
            keep(paths, check, differing)
        raise RegisterError(_message(smallest.sample, text))


def _keep_printed(paths: Paths, check: Check, sample: CaseCall, printed: str) -> None:
    """Keep the arrays of a sample that torch's check refuses, for the report: those that `check` finds for a small one;
    for a larger one, and where it finds none, as for a second derivative, the Jacobians that torch printed."""
    small = all(tensor.numel() <= gradient_samples.SMALL for tensor in sample.tensors)
    problem = check.run(sample.model).problem if small else None
    if problem and (differing := problem()[1]):
        keep(paths, check, differing)
    elif pairs := _PAIR.findall(printed):
        numerical, analytical = (np.array(_matrix(text)) for text in pairs[-1])
        if numerical.size and numerical.shape == analytical.shape:
            tolerance = Tolerance(rtol=RTOL, atol=ATOL)
            pair = Pair("analytical Jacobian", [analytical], "numerical Jacobian", [numerical], [tolerance])
            name = verdict.name_case("gradient", sample.case.name)
            _write(paths, sample, name, "Jacobian, by [element of the input, of the output]", pair, saved=False)


def _samples(operator: Operator, gradient: Gradient) -> Iterator[CaseCall]:
    """Yield the small, finite cases in float64, and if there is none, those of other dtypes as float64."""
    spec, others = operator.spec, []
    found = False
    for model in operator.models:
        for case in filter(described, model.cases):
            arrays = case_arrays(spec, model, case)
            if not small_and_finite(arrays, elements=SMALL):
                continue
            alone = replace(model, cases=(case,))
            one = sample(spec, alone, without=gradient.without, exact=True, arrays=arrays)
            if not one.derived:
                continue
            if any(array.dtype == "float64" for array in arrays):
                found = True
                yield one
            else:
                others.append(one)
    if not found:
        yield from others


def _check(paths: Paths, further: Check, sample: CaseCall) -> list[dict[str, str]]:
    """Return the checks that passed. Raises RegisterError."""
    if problems := list(_differing_inputs(sample, further.gradient, further.operator)):
        raise RegisterError("\n".join(problems))
    step_log.now_running(f"the gradient for case {sample.case.name}")
    fast = sum(t.numel() for t in sample.leaves()) > TINY
    proved: list[dict[str, str]] = []
    checks: list[tuple[str, Any]] = [
        ("gradcheck", torch.autograd.gradcheck),
        ("gradgradcheck", torch.autograd.gradgradcheck),
    ]
    for name, check in checks if further.gradient.is_derived_twice else checks[:1]:
        try:
            with print_whole_matrices():
                check(sample.floating, sample.leaves(), fast_mode=fast, rtol=RTOL, atol=ATOL)
        except Exception as error:  # GradcheckError, or an exception of backward()
            problem = summarize(str(error)) or one_line(error).rstrip(".")
            more = _of_other_inputs(sample, problem, fast=fast) + _hint(sample) if name == "gradcheck" else ""
            message = _message(sample, f"torch.autograd.{name} says: {problem}{more}")
            _keep_printed(paths, further, sample, str(error))
            raise RegisterError(message) from error
        proved.append({"case": sample.case.name, "check": name, "mode": "fast" if fast else "every element"})
    return proved


def _of_other_inputs(sample: CaseCall, problem: str, *, fast: bool) -> str:
    """Return whether the gradients of the inputs that gradcheck did not come to are right: it stops at the first one
    that is wrong."""
    if not (found := _INPUT.search(problem)):
        return ""
    right: dict[bool, list[str]] = {True: [], False: []}
    for n, index in enumerate(sample.derived):
        if n != int(found[1]):
            leaves = [leaf if at == n else leaf.detach() for at, leaf in enumerate(sample.leaves())]
            try:
                passes = torch.autograd.gradcheck(sample.floating, leaves, fast_mode=fast, rtol=RTOL, atol=ATOL)
            except Exception:  # GradcheckError, or an exception of backward()
                passes = False
            right[passes].append(repr(sample.names[index]))
    said = {True: "right", False: "wrong, too"}
    return "".join(f". {', '.join(names)}: {said[passes]}" for passes, names in right.items() if names)


@torch.no_grad()
def _hint(sample: CaseCall) -> str:
    """Return why no derivative can be measured, or "": outputs that do not change with a small step of an input."""
    for n, index in enumerate(sample.derived):
        outputs = []
        try:
            for step in (0.0, 1e-12, 1.0):
                leaves = [*sample.leaves()]
                leaves[n] = leaves[n] * (1 + step)
                outputs.append(torch.cat([o.flatten() for o in sample.floating(*leaves)]))
        except DataError:
            continue
        here, near, far = outputs
        if torch.equal(here, near) and not torch.equal(here, far):
            return (
                f". For {sample.names[index]!r}, reference.py gives equal outputs at a step of 1e-12, others at 1: it "
                "computes in float32, or in steps. Compute in the dtype of the inputs, or declare NOT_A_DERIVATIVE in "
                f"torch_op.py and write a reference of the gradient, {sample.spec.name}_gradient()"
            )
    return ""


def _differing_inputs(sample: CaseCall, gradient: Gradient, operator: ReferenceOperator) -> Iterator[str]:
    """Yield a message for each floating input whose gradient is none, or of another kind than declared."""
    asking = replace(sample, derived=[n for n, t in enumerate(sample.tensors) if t.is_floating_point()])
    leaves = asking.leaves()
    try:
        total = sum((o.sum() for o in asking.floating(*leaves)), torch.zeros(()))
        found = torch.autograd.grad(total, leaves, allow_unused=True)
    except Exception as error:  # any exception of the user's backward()
        yield _message(sample, f"backward() raises {type(error).__name__}: {one_line(error).rstrip('.')}")
        return
    yield from (_message(sample, text) for text in mistakes(asking, found, gradient, operator))


def _message(sample: CaseCall, what: str) -> str:
    """Return the message; "Formula" is the file that is compared with the derivative of the reference."""
    what = _INPUT.sub(lambda match: f"{match[0]} ({sample.names[sample.derived[int(match[1])]]!r})", what, count=1)
    if "Sample: " not in what:
        what = f"{what}. Sample: {sample.described()}"
    name, called = sample.spec.name, backward_of(sample.spec)
    formula = f"ops/{called}/reference.py" if called else f"ops/{name}/torch_op.py"
    return f"{sample}: gradient: {what}. Formula: {formula}. Replay: python -m opmatrix register {name} --part gradient"


@contextmanager
def print_whole_matrices() -> Iterator[None]:
    """Let torch print whole matrices in the block, so that `summarize` can read them."""
    torch.set_printoptions(threshold=_MOST, precision=8, linewidth=120)  # type: ignore[no-untyped-call]  # torch has no types for it
    try:
        yield
    finally:
        torch.set_printoptions(profile="default")  # type: ignore[no-untyped-call]  # as above


def summarize(text: str) -> str:
    """Return one line with the elements that differ, "" if no Jacobian is wrong; log the whole `text`."""
    head = text.strip().partition("\n")[0].rstrip(",")
    if "Jacobian" not in head or not (pairs := _PAIR.findall(text)):
        return ""
    step_log.detail(text.strip())
    numerical, analytical = map(_matrix, pairs[-1])
    largest = re.search(r"max per-element difference[^:]*: (\S+?)\.?\s", text)
    if [len(row) for row in numerical] != [len(row) for row in analytical] or not numerical:
        return f"{head}; the largest difference is {float(largest[1]):.3g}" if largest else head
    found = [
        (f"[{i}, {j}]", n, a)
        for i, (row, other) in enumerate(zip(numerical, analytical, strict=True))
        for j, (n, a) in enumerate(zip(row, other, strict=True))
        if not abs(n - a) <= ATOL + RTOL * abs(n)  # so that a NaN differs
    ]
    if not found:  # in fast mode the sums may differ although no element does
        return f"{head}; no single element differs by more than rtol={RTOL:g} atol={ATOL:g}"
    count = sum(map(len, numerical))
    differ = "differs" if len(found) == 1 else "differ"
    elements = "; ".join(f"{where} numerical {n:.6g}, analytical {a:.6g}" for where, n, a in found[:_FEW])
    more = f"; and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return (
        f"{head}: {len(found)} of {count} elements {differ}, by [element of the input, of the output]: {elements}{more}"
    )


def _matrix(text: str) -> list[list[float]]:
    """Return the rows of a printed matrix, or [] if it is not printed whole."""
    if "..." in text:
        return []
    return [[float(number) for number in row.replace(",", " ").split()] for row in _ROW.findall(text)]


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
            present = {bool(tensors_of(m.cases[0], part.name)) for m in self._models}
            if part.optional and len(present) == 1:
                lacking = "without" if present == {True} else "with"
                yield f"no sample is {lacking} {part.name}. Add a small, finite case {lacking} it"
        for attribute in self._spec.attributes:
            yield from self._unseen(attribute)

    def _why(self, name: str) -> str:
        if not any(tensors_of(m.cases[0], name) for m in self._models) and name not in self._undecided:
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
    """Write the record for the report, and the call for `save-case`, as `torch.load(weights_only=True)` reads it, with
    the strides of the tensors; except that of a gradient by an operator: torch alone does not compute it."""
    one, name = differing.sample, verdict.name_case("gradient", differing.sample.case.name)
    pair = Pair(
        differing.actual_is,
        [as_array(differing.actual.detach())],
        differing.expected_is,
        [as_array(differing.expected.detach())],
        [Tolerance(rtol=differing.rtol, atol=differing.atol)],
    )
    saved = check.gradient.operator is None
    output = f"gradient of {_label(one, one.derived[differing.n])}"
    _write(paths, one, name, output, pair, saved=saved)
    if not saved:
        return
    given: dict[str, Any] = {}

    def called(*positional: Any, **keywords: Any) -> None:
        given.update(positional=list(positional), keywords=keywords)

    with_attributes(called, one.spec, one.model)(*one.arguments_of(one.with_derived(differing.leaves)))
    call = {
        "name": torch_qualified(one.spec),
        "schema": torch_schema(one.spec),
        **given,
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
    path = paths.failing_case(one.spec.name, name).with_suffix(".pt")
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(call, path)


def _write(paths: Paths, one: CaseCall, name: str, output: str, pair: Pair, *, saved: bool) -> None:
    path = paths.mismatches(paths.register_manifest(one.spec.name, "gradient", torch=torch_minor()))
    inputs = {_label(one, n): as_array(tensor.detach()) for n, tensor in enumerate(one.tensors)}
    found = mismatch.of_case(one.spec, one.model, name, inputs, [output], [pair])
    verdict.write_mismatches(path, [{**found, "saved": saved}] if found else [])


def _label(one: CaseCall, index: int) -> str:
    """Return the name of a tensor of a sample: ``x``, or ``others_1`` for a variadic input."""
    name = one.names[index]
    return f"{name}_{one.names[:index].count(name)}" if one.names.count(name) > 1 else name


def _calls(check: Check, differing: Differing) -> list[dict[str, Any]]:
    """Return the calls of the kernel while the gradient is computed, which the formula may call, too."""
    kernel, leaves = check.operator.kernel, differing.leaves
    check.operator.compute(exact=all(leaf.dtype == torch.float64 for leaf in leaves))
    calls: list[dict[str, Any]] = []
    kernel.calls = calls
    try:
        outputs = differing.sample.call_derived(*leaves)
        backward(outputs, [leaves[differing.n]], differing.weights)
    finally:
        kernel.calls = None
    return calls
