"""Call backward() of the torch_op.py in this folder, and compare a gradient with the expected one: `python replay.py`.

Needs torch 2.4 or newer. It exits with 1 where the gradient differs.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

FOLDER = Path(__file__).resolve().parent


def main() -> int:
    """Print how the gradient differs."""
    case = torch.load(FOLDER / "case.pt", weights_only=True)
    library = defined(case)
    namespace, _, name = case["name"].partition("::")
    name, _, overload = name.partition(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    floating = [
        o for o in pytree.tree_leaves(operator(*case["positional"], **case["keywords"])) if o.is_floating_point()
    ]
    asked = [(o, w) for o, w in zip(floating, case["weights"]) if o.requires_grad]  # noqa: B905 - Python 3.9
    outputs, weights = [o for o, _ in asked], [w for _, w in asked]
    (found,) = torch.autograd.grad(outputs, [case["leaves"][case["leaf"]]], weights, allow_unused=True)
    del library
    if found is None:
        print(f"backward() gives no gradient of {case['of']}")
        return 1
    return 0 if agrees(case, found.to(case["expected"].dtype)) else 1


def defined(case: dict[str, Any]) -> torch.library.Library:
    """Define the operator with the formula. Its kernel returns outputs of the reference, which are in case.pt."""

    def kernel(*positional: Any, **keywords: Any) -> Any:
        given = pytree.tree_leaves([positional, [*keywords.values()]])
        for call in case["calls"]:
            known = pytree.tree_leaves(call["given"])
            if len(given) == len(known) and all(map(same, given, known)):
                return pytree.tree_map(torch.clone, call["result"])  # an operator returns no argument
        raise RuntimeError(f"torch_op.py calls {case['name']} with inputs whose outputs are not in case.pt")

    described = importlib.util.spec_from_file_location("torch_op", FOLDER / "torch_op.py")
    assert described and described.loader
    formula = importlib.util.module_from_spec(described)
    described.loader.exec_module(formula)
    namespace, _, name = case["name"].partition("::")
    library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]  # torch has no types for it
    library.define(case["schema"].partition("::")[2])  # type: ignore[no-untyped-call]  # as above
    library.impl(name, kernel, "CPU")  # type: ignore[no-untyped-call]  # as above
    torch.library.register_autograd(case["name"], formula.backward, setup_context=formula.setup_context, lib=library)
    return library


def same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return bool(one == other)
    return one.dtype == other.dtype and one.shape == other.shape and bool(((one == other) | (one != one)).all())


def agrees(case: dict[str, Any], actual: torch.Tensor) -> bool:
    """Print where the gradient differs from the expected one, within atol + rtol * |expected|; return whether it
    agrees."""
    expected, rtol, atol, name = case["expected"], case["rtol"], case["atol"], f"gradient of {case['of']}"
    if actual.shape != expected.shape:
        print(f"{name}: {[*actual.shape]}, expected {[*expected.shape]}")
        return False
    beyond = ~torch.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    print(f"{name}: {int(beyond.sum())} of {expected.numel()} elements differ beyond rtol={rtol:g} atol={atol:g}")
    for at in beyond.nonzero()[:10].tolist():
        wanted, found = (float(of[tuple(at)]) + 0.0 for of in (expected, actual))  # 0 for -0
        print(f"  {tuple(at)}: backward() {found}, {case['expected_is']} {wanted}")
    return not bool(beyond.any())


if __name__ == "__main__":
    print(f"torch {torch.__version__}")
    sys.exit(main())
