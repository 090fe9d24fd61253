"""``python -m opmatrix.scaffold.aten_process aten::name[.overload]``: describe an operator of torch, as JSON.

It runs in a process of its own, because doit's must not import torch, which takes one or two seconds.
"""

from __future__ import annotations

import difflib
import json
import sys
from typing import Any

import torch

SHAPES = ((3, 4), (4, 4), (2, 3, 4), (2, 4, 4), (2, 3, 4, 4), (12,))


def describe(name: str) -> dict[str, Any]:
    """Return the schemas and sample runs of an operator by overload; similar names if there is no such operator."""
    qualified, _, _ = name.partition(".")
    schemas = torch._C._jit_get_schemas_for_operator(qualified)
    found = {s.overload_name: str(s) for s in schemas if _is_dispatched(qualified, s.overload_name)}
    if found:
        return {"torch": torch.__version__, "schemas": found, "runs": {k: _runs(qualified, k) for k in found}}
    known = sorted({s.name for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")})
    return {"torch": torch.__version__, "schemas": {}, "near": difflib.get_close_matches(qualified, known, n=3)}


def _is_dispatched(qualified: str, overload: str) -> bool:
    """Return whether the dispatcher has an overload; TorchScript has further ones, of numbers and lists."""
    try:
        torch._C._dispatch_find_schema_or_throw(qualified, overload)
    except RuntimeError:
        return False
    return True


def _runs(qualified: str, overload: str) -> dict[str, Any] | None:
    """Return the first of `SHAPES` that the operator accepts for all tensors, with its outputs, or None."""
    packet = getattr(torch.ops.aten, qualified.removeprefix("aten::"), None)
    function = getattr(packet, overload or "default", None)
    if function is None or function._schema.is_mutable:
        return None
    needed = [a for a in function._schema.arguments if not a.has_default_value()]
    for shape in SHAPES:
        values = [(a, _argument(a, shape)) for a in needed]
        try:
            result = function(
                *(v for a, v in values if not a.kwarg_only), **{a.name: v for a, v in values if a.kwarg_only}
            )
        except Exception:  # of any type: this shape is not accepted
            continue
        outputs = result if isinstance(result, tuple | list) else (result,)
        if all(isinstance(o, torch.Tensor) for o in outputs):
            described = [{"shape": list(o.shape), "dtype": str(o.dtype).removeprefix("torch.")} for o in outputs]
            return {"shape": list(shape), "outputs": described}
    return None


def _argument(argument: Any, shape: tuple[int, ...]) -> Any:
    """Return a value for an argument without a default: a tensor of random values in [0, 1), or a plain constant."""
    values = {"int": 1, "float": 0.5, "bool": True, "str": "none", "number": 1, "List[int]": [0], "List[float]": [0.5]}
    match str(argument.type):
        case "Tensor":
            return torch.rand(shape, generator=torch.Generator().manual_seed(0))
        case "List[Tensor]":
            return [torch.rand(shape)] * 2
        case other:
            return values.get(other)


if __name__ == "__main__":
    json.dump(describe(sys.argv[1]), sys.stdout)
