"""The "gradient" part of register: compare backward() of torch_op.py with numerical derivatives, and its own gradient.

The derivatives are those of reference.py, so that an edit of a kernel does not run the check again.
opmatrix.torch_checks.opcheck checks that the compiled operator uses backward().
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from opmatrix import step_log
from opmatrix.declaration.load import Operator
from opmatrix.declaration.model_inputs import graph_inputs
from opmatrix.declaration.torch_signature import as_float32, torch_arguments, torch_schema
from opmatrix.errors import RegisterError, one_line
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, Case, Model, OpSpec
from opmatrix.testdata.case_arrays import case_arrays, described, small_and_finite
from opmatrix.testdata.numpy_reference import Reference
from opmatrix.torch_library import user_python
from opmatrix.torch_library.call import torch_attributes, torch_operator
from opmatrix.torch_library.case_tensors import arguments, tensors
from opmatrix.torch_library.user_python import Gradient

SMALL = 1000  # elements of one tensor, in gradcheck's fast mode
TINY = 64  # elements of all tensors, up to which gradcheck varies each
RTOL, ATOL = 1e-3, 1e-5  # gradcheck's defaults
_FEW = 4  # elements in the message
_MOST = 20_000  # elements of a matrix that torch prints whole

# In fast mode the second pair has the matrices, the first two sums.
_PAIR = re.compile(
    r"numerical:\s*tensor\((.*?)\)\s*analytical:\s*tensor\((.*?)\)\s*(?=\n|$)", re.DOTALL | re.IGNORECASE
)
_ROW = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True, kw_only=True)
class GradSample:
    """One case with its tensors. `derived` are the indices of those that require a gradient."""

    spec: OpSpec
    model: Model
    case: Case
    flat: list[torch.Tensor]
    names: list[str]
    derived: list[int]

    def __str__(self) -> str:
        return f"{self.spec.name}-{self.case.name}"

    def call(self, *derived: torch.Tensor) -> Any:
        """Call the operator and return its floating-point outputs; others have no gradient."""
        flat = list(self.flat)
        for index, tensor in zip(self.derived, derived, strict=True):
            flat[index] = tensor
        called = torch_operator(self.spec)(
            *arguments(self.spec, self.case, flat), **torch_attributes(self.spec, self.model)
        )
        outputs = called if isinstance(called, tuple) else (called,)
        return tuple(o for o in outputs if o.is_floating_point())

    def leaves(self) -> tuple[torch.Tensor, ...]:
        """Return the `derived` tensors as leaves that require a gradient.

        They keep their strides unless one is 0, because gradcheck varies elements in place.
        """
        chosen = (self.flat[index].detach() for index in self.derived)
        return tuple((t.contiguous() if 0 in t.stride() else t).requires_grad_() for t in chosen)


def results(layout: Paths, operator: Operator) -> list[dict[str, str]]:
    """Return the checks that passed: none for an operator defined in Python without backward().

    Raises RegisterError for the first case that fails, and for a torch_op.py that should have backward() and has none.
    """
    spec, gradient = operator.spec, user_python.gradient(layout, operator.spec)
    if gradient is None:
        if spec.torch and spec.torch.python:
            return []
        raise RegisterError(
            f"ops/{spec.name}/torch_op.py: no backward(); a gradient takes setup_context() and backward()"
        )
    library = define(spec, Reference(layout, spec), gradient)
    samples = list(_samples(operator, gradient))
    if not samples:
        raise RegisterError(
            f"{spec.name}: no case to check its gradient with. Add one to cases.py that is finite, float64, and has "
            f"at most {SMALL} elements in each tensor"
        )
    proved = []
    for sample in samples:  # stop at the first failure, for gradcheck takes seconds to describe one
        proved += _check(sample, gradient)
    del library  # the operator lives as long as this object
    return proved


def define(spec: OpSpec, reference: Reference, gradient: Gradient) -> torch.library.Library:
    """Define the operator, with the reference as its kernel, for as long as the returned object lives."""
    assert spec.torch is not None
    namespace, _, name = spec.torch.name.partition("::")
    library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(torch_schema(spec).removeprefix(f"{namespace}::"))  # type: ignore[no-untyped-call]
    library.impl(name, _reference_kernel(spec, reference), "CPU")  # type: ignore[no-untyped-call]
    gradient.register(spec.torch.name, library)
    return library


def _reference_kernel(spec: OpSpec, reference: Reference) -> Callable[..., Any]:
    """Return the reference with the operator's torch signature: inputs and attributes by position or by name."""
    declared = torch_arguments(spec)

    def compute(*given: Any, **named: Any) -> Any:
        values = {a.name: a.default for a in declared} | dict(zip((a.name for a in declared), given)) | named  # noqa: B905
        inputs = [_array(values[i.name]) for i in spec.inputs]
        attributes = {
            a.source.name: as_float32(a.source, tuple(value) if isinstance(value, list) else value)
            for a in declared
            if isinstance(a.source, Attribute) and (value := values[a.name]) is not None
        }
        outputs = tuple(torch.from_numpy(output) for output in reference(inputs, attributes))
        return outputs if len(outputs) > 1 else outputs[0]

    return compute


def _array(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_array(v) for v in value)
    return None if value is None else value.detach().numpy()


def _samples(operator: Operator, gradient: Gradient) -> Iterator[GradSample]:
    spec = operator.spec
    for model in operator.models:
        for case in filter(described, model.cases):
            arrays = case_arrays(spec, model, case)
            if not small_and_finite(arrays, elements=SMALL):
                continue
            flat = tensors(spec, model, case, arrays)
            names = [feed.part.name for feed in graph_inputs(spec, model, case)]
            double = [n for n, t in enumerate(flat) if t.dtype == torch.float64 and names[n] not in gradient.without]
            if double:
                yield GradSample(spec=spec, model=model, case=case, flat=flat, names=names, derived=double)


def _check(sample: GradSample, gradient: Gradient) -> list[dict[str, str]]:
    """Return the checks that passed. Raises RegisterError."""
    if problems := list(_differing_inputs(sample, gradient)):
        raise RegisterError("\n".join(problems))
    step_log.now_running(f"the gradient for case {sample.case.name}")
    fast = sum(t.numel() for t in sample.leaves()) > TINY
    proved: list[dict[str, str]] = []
    for name, check in (("gradcheck", torch.autograd.gradcheck), ("gradgradcheck", torch.autograd.gradgradcheck)):
        try:
            with print_whole_matrices():
                check(sample.call, sample.leaves(), fast_mode=fast, rtol=RTOL, atol=ATOL)
        except Exception as error:  # GradcheckError, or an exception of backward()
            problem = summarize(str(error)) or one_line(error).rstrip(".")
            raise RegisterError(_message(sample, f"torch.autograd.{name} says: {problem}")) from error
        proved.append({"case": sample.case.name, "check": name, "mode": "fast" if fast else "every element"})
    return proved


def _differing_inputs(sample: GradSample, gradient: Gradient) -> Iterator[str]:
    """Yield a message for each input whose gradient is missing, or given although WITHOUT_GRADIENT names the input."""
    floating = [n for n, t in enumerate(sample.flat) if t.is_floating_point()]
    asking = GradSample(**{**vars(sample), "derived": floating})
    leaves = asking.leaves()
    try:
        total = sum((o.sum() for o in asking.call(*leaves)), torch.zeros(()))
        found = torch.autograd.grad(total, leaves, allow_unused=True)
    except Exception as error:  # any exception of the user's backward()
        yield _message(sample, f"backward() raises {type(error).__name__}: {one_line(error).rstrip('.')}")
        return
    for index, grad in zip(floating, found, strict=True):
        name = sample.names[index]
        if grad is None and name not in gradient.without:
            yield _message(sample, f"it gives no gradient for {name!r}. Give one, or name it in WITHOUT_GRADIENT")
        elif grad is not None and name in gradient.without:
            yield _message(sample, f"it gives a gradient for {name!r}, which WITHOUT_GRADIENT names")


def _message(sample: GradSample, what: str) -> str:
    inputs = ", ".join(f"{n} {sample.names[index]}" for n, index in enumerate(sample.derived))
    return (
        f"{sample}: gradient: {what}. Formula: ops/{sample.spec.name}/torch_op.py, inputs: {inputs}. "
        f"Replay: python -m opmatrix register {sample.spec.name} --part gradient"
    )


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
        return f"{head}; the largest difference is {largest[1]}" if largest else head
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
