"""The row torch.compile of `doit compat`: one graph, compiled once for several sizes."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from typing import Any

import torch

from opmatrix.declaration.torch_signature import torch_arguments
from opmatrix.errors import CompatError
from opmatrix.spec import FromKernel, OpSpec
from opmatrix.torch_checks.compat_gradient import gradients
from opmatrix.torch_checks.compat_samples import (
    Compat,
    CompatSample,
    RefusedError,
    require_equal,
    require_near,
    resized,
)
from opmatrix.torch_library.call import as_tuple

_SIZES = 4  # calls of one compiled function
_SIZES_OF_DATA = "with torch._dynamo.config.capture_dynamic_output_shape_ops = True"


def compiled(compat: Compat, *, backend: Any = "inductor") -> tuple[int, str]:
    """Compile the call of each sample as one graph with dynamic sizes, and call it with several sizes: it may be
    compiled once."""
    refuse_keywords(compat.spec, lambda: _compiled_once(compat.samples[:1], backend))
    count, variable = 0, any(isinstance(o.shape, FromKernel) for o in compat.spec.outputs)
    before = torch._dynamo.config.capture_dynamic_output_shape_ops
    torch._dynamo.config.capture_dynamic_output_shape_ops = before or variable
    try:
        for base in (*compat.samples, *compat.written):
            several = [base, *(sample for _, sample in zip(range(_SIZES - 1), resized(base), strict=False))]
            count += _compiled_once(several, backend)
        if compat.gradient:
            count += sum(_compiled_gradient(compat, s, backend) for s in (compat.samples, compat.written))
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = before
        torch._dynamo.reset()
    return count, _SIZES_OF_DATA if variable else ""


def refuse_keywords(spec: OpSpec, compile: Callable[[], object]) -> None:
    """Raise RefusedError for an operator with an argument that a keyword of Python names, if inductor refuses it."""
    if named := [a.name for a in torch_arguments(spec) if keyword.iskeyword(a.name)]:
        why = f"inductor cannot call an operator with an argument that a keyword of Python names: {', '.join(named)}"
        try:
            compile()
        except Exception as error:  # of several kinds, by the place of the argument
            raise RefusedError(why) from error
        raise CompatError(f"expected an error, and it ran: {why}")


def _compiled_once(several: Sequence[CompatSample], backend: Any) -> int:
    graphs: list[Any] = []
    compile_graph = torch._dynamo.lookup_backend(backend) if isinstance(backend, str) else backend

    def counted(graph: Any, inputs: Any) -> Any:
        found = compile_graph(graph, inputs)  # which torch interrupts to begin again, where an attribute is a float
        graphs.append(graph)
        return found

    torch._dynamo.reset()
    settings: Any = torch.fx.experimental._config
    function: Any = torch.compile(several[0].function, backend=counted, fullgraph=True, dynamic=True)
    for sample in several:
        # Else torch takes sizes that are equal in the first call for one, and compiles again where they are not.
        with torch.no_grad(), settings.patch(use_duck_shape=False):
            found = as_tuple(function(*sample.arguments))
        require_equal(sample, found, sample.functional.call(*sample.tensors), "compiled by torch.compile")
        if len(graphs) > 1:
            raise CompatError(
                f"{sample}: torch.compile compiled it again for these sizes, after {several[0]}: the fake kernel or "
                "the gradient takes a size as a number, such as int(x.shape[0])"
            )
    return len(several)


def _compiled_gradient(compat: Compat, samples: Sequence[CompatSample], backend: Any) -> int:
    for base in samples:
        if places := compat.derived(base):
            torch._dynamo.reset()
            function = torch.compile(base.function, backend=backend, fullgraph=True, dynamic=True)
            expected = gradients(base.functional.function, base, places)
            found = gradients(function, base, places)
            require_near(base, found, expected, "in the gradient of the compiled call")
            return 1
    return 0
