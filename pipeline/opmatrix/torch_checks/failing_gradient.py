"""Keep a gradient that differs from the expected one: for the report, and for `save-case`, whose folder replays it."""

from __future__ import annotations

from typing import Any

import torch

from opmatrix import verdict
from opmatrix.declaration.torch_signature import torch_qualified, torch_schema
from opmatrix.project.paths import Paths
from opmatrix.spec import Tolerance
from opmatrix.testdata import mismatch
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.compare import Pair
from opmatrix.torch_checks import backward_calls
from opmatrix.torch_checks.derivative import Check
from opmatrix.torch_checks.grad_sample import GradSample
from opmatrix.torch_checks.gradient_message import Differing
from opmatrix.torch_library.call import torch_minor, with_attributes
from opmatrix.torch_library.case_tensors import arguments, as_array

PREFIX = "gradient_"  # of the name of a sample, which may be that of a case


def keep(layout: Paths, check: Check, differing: Differing) -> None:
    """Write the record for the report, and the call for `save-case`, except that of a gradient by an operator: torch
    alone does not compute it."""
    one, name = differing.sample, PREFIX + differing.sample.case.name
    pair = Pair(
        differing.actual_is,
        [as_array(differing.actual.detach())],
        differing.expected_is,
        [as_array(differing.expected.detach())],
        [Tolerance(rtol=differing.rtol, atol=differing.atol)],
    )
    saved = check.gradient.operator is None
    _write(layout, one, name, f"gradient of {_label(one, one.derived[differing.n])}", pair, saved=saved)
    if saved:
        path = layout.failing_case(one.spec.name, name).with_suffix(".pt")
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(_call(check, differing), path)


def keep_jacobians(layout: Paths, one: GradSample, numerical: Array, analytical: Array) -> None:
    """Write the record of a second derivative, of which torch's checks print the Jacobians alone."""
    pair = Pair(
        "analytical Jacobian", [analytical], "numerical Jacobian", [numerical], [Tolerance(rtol=1e-3, atol=1e-5)]
    )
    _write(layout, one, PREFIX + one.case.name, "Jacobian, by [element of the input, of the output]", pair, saved=False)


def _write(layout: Paths, one: GradSample, name: str, output: str, pair: Pair, *, saved: bool) -> None:
    path = layout.mismatches(layout.register_manifest(one.spec.name, "gradient", torch=torch_minor()))
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
