"""The operator with the reference as its kernel, in the declared dtypes or in float64, for the gradient check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from opmatrix.basics.errors import DataError
from opmatrix.basics.files import line_in, load_module
from opmatrix.data import torch_reference
from opmatrix.data.reference import Reference
from opmatrix.project.dtypes import FLOAT8, FLOATS
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import as_float32, torch_arguments, torch_name, torch_qualified, torch_schema
from opmatrix.sizes.variadic import nested
from opmatrix.spec import Attribute, Input, OpSpec
from opmatrix.torch_ops import load
from opmatrix.torch_ops.case_tensors import as_array, as_tensor
from opmatrix.torch_ops.load import Gradient

_FLOATS = {*FLOATS} - {*FLOAT8}


class ReferenceOperator:
    """The operator, defined in torch for as long as this object lives: nothing that torch keeps refers to it.

    With `compute(exact=True)` it computes in float64, also where the declaration has no float64 (`in_float64`).
    """

    def __init__(
        self, paths: Paths, spec: OpSpec, gradient: Gradient | None, *, without: Sequence[str] | None = None
    ) -> None:
        """Define it; `without` are the inputs that stay in the declared dtype, by default those of the gradient."""
        assert spec.torch is not None
        self.spec = spec
        self._returned: dict[str, set[torch.dtype]] = {}  # by backward(), the last time, for each input
        without = (gradient.without if gradient else ()) if without is None else without
        called = gradient.operator.spec if gradient and gradient.operator else None
        # Of the operator that computes the gradient, the reference, too: `register` compares its kernel with that.
        self._called: ReferenceOperator | None = None
        if called:
            self._called = ReferenceOperator(paths, called, load.gradient(paths, called), without=without)
        self.kernel: _Kernel = _Kernel(paths, spec, without)
        namespace, _, name = torch_qualified(spec).partition("::")
        self._library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]  # torch has no types for it
        self._library.define(torch_schema(spec).removeprefix(f"{namespace}::"))  # type: ignore[no-untyped-call]  # as above
        self._library.impl(name, self.kernel, "CPU")  # type: ignore[no-untyped-call]  # as above
        if gradient is None:
            return
        formula, returned = gradient.backward, self._returned

        def backward(ctx: Any, *grads: Any) -> Any:  # which does not refer to this object
            gradients = formula(ctx, *grads)
            each = gradients if isinstance(gradients, tuple) else (gradients,)
            values = zip(torch_arguments(spec), each, strict=False)
            returned.clear()
            returned.update(
                (argument.source.name, {t.dtype for t in (v if isinstance(v, list | tuple) else [v]) if t is not None})
                for argument, v in values
                if isinstance(argument.source, Input)
            )
            return gradients

        replace(gradient, backward=backward).register(torch_qualified(spec), self._library)

    def compute(self, *, exact: bool) -> None:
        """Compute in float64 from now on, or in the declared dtypes; the operator that computes the gradient, too."""
        self.kernel.exact = exact
        if self._called:
            self._called.compute(exact=exact)

    def wrong_dtype(self, name: str, dtype: torch.dtype) -> str:
        """Return what is wrong with the dtype that backward() returned the last time for an input of `dtype`, or "".

        torch casts it, so that no gradient shows a float64 formula that computes in float32.
        """
        if not (others := self._returned.get(name, set()) - {dtype}):
            return ""
        found, wanted = (str(one).removeprefix("torch.") for one in (others.pop(), dtype))
        return f"backward() returns {found} for {name!r}, which is {wanted}. Compute in the dtype of the input"


class _Kernel:
    """The reference with the operator's torch signature: inputs and attributes by position or by name."""

    def __init__(self, paths: Paths, spec: OpSpec, without: Sequence[str]) -> None:
        self.exact = False
        self.calls: list[dict[str, Any]] | None = None
        """What it was called with, and what it returned, while this is a list."""
        self._spec = spec
        self._declared = Reference(paths, spec)
        self._in_float64 = Reference(paths, in_float64(spec, without))

    def __call__(self, *positional: Any, **named: Any) -> Any:
        declared = torch_arguments(self._spec)
        values = {a.name: a.default for a in declared} | dict(zip((a.name for a in declared), positional)) | named  # noqa: B905 - defaults stand for the last ones
        inputs = [as_arrays(values[torch_name(i)]) for i in self._spec.inputs]
        attributes = {
            a.source.name: as_float32(a.source, tuple(value) if isinstance(value, list) else value)
            for a in declared
            if isinstance(a.source, Attribute) and ((value := values[a.name]) is not None or a.source.optional)
        }
        reference = self._in_float64 if self.exact else self._declared
        outputs = tuple(as_tensor(output) for output in reference(inputs, attributes))
        result = nested(self._spec, outputs)
        if self.calls is not None:
            self.calls.append({"given": [*positional, *named.values()], "result": result})
        return result


def as_arrays(value: Any) -> Any:
    """Return NumPy arrays for tensors, also within lists; None stays None."""
    if isinstance(value, list | tuple):
        return tuple(as_arrays(v) for v in value)
    return None if value is None else as_array(value.detach())


def differentiated_types(spec: OpSpec, without: Sequence[str]) -> frozenset[str]:
    """Return the types, as declared, of the inputs that take a gradient."""
    return frozenset(
        i.type for i in spec.inputs if i.name not in without and {*spec.types.get(i.type, (i.type,))} & {*_FLOATS}
    )


def in_float64(spec: OpSpec, without: Sequence[str]) -> OpSpec:
    """Return the declaration with float64 wherever a gradient is taken, and for all floating outputs of a fixed dtype.

    An input of the same declared type as one that takes a gradient is float64 as well: a formula may multiply the two.
    """
    types = differentiated_types(spec, without)
    variables = {
        name: (*dtypes, "float64") if name in types and "float64" not in dtypes else dtypes
        for name, dtypes in spec.types.items()
    }
    fixed = types - spec.types.keys()
    return replace(
        spec,
        types=variables,
        inputs=tuple(replace(i, type="float64") if i.type in fixed else i for i in spec.inputs),
        outputs=tuple(replace(o, type="float64") if o.type in _FLOATS else o for o in spec.outputs),
    )


class ReferenceGradient:
    """The function ``<name>_gradient`` of reference.py: the gradient of an operator for which it is no derivative.

    It takes the gradient of each output (None for one that is not floating), then what the reference takes, and returns
    one gradient per input, None where there is none.
    """

    def __init__(self, paths: Paths, spec: OpSpec, *, declared: bool) -> None:
        """Load it. Raises DataError where it is missing, or exists although torch_op.py does not declare it."""
        self._spec, self._path = spec, paths.reference(spec.name)
        self._shown = str(self._path.relative_to(paths.root))
        name, operator = f"{spec.name}_gradient", f"ops/{spec.name}/torch_op.py"
        try:
            if spec.reference == "torch":
                self._function: Any = torch_reference.gradient(paths, spec)
            else:
                self._function = getattr(load_module(self._path, "reference"), name, None)
        except Exception as error:  # a user's module may raise anything
            raise DataError(self._raised(error)) from error
        if declared and not callable(self._function):
            raise DataError(
                f"{self._shown}: no function {name}(); {operator} declares NOT_A_DERIVATIVE, so it takes the gradients "
                "of the outputs and what the reference takes, and returns one gradient per input"
            )
        if not declared and self._function is not None:
            raise DataError(
                f"{self._shown}: {name}() is not used: {operator} has no NOT_A_DERIVATIVE. Give the reason there, or "
                "remove the function: the gradient is compared with numerical derivatives"
            )

    def __call__(self, grads: Sequence[Any], inputs: Sequence[Any], attributes: Any) -> tuple[Any, ...]:
        try:
            found = self._function(*grads, *inputs, **attributes)
        except DataError:  # of the process that evaluates a reference in torch
            raise
        except Exception as error:  # as above
            raise DataError(self._raised(error)) from error
        gradients = found if isinstance(found, tuple) else (found,)
        expected = self._spec.inputs
        if len(gradients) != len(expected):
            raise DataError(
                f"{self._shown}: {self._spec.name}_gradient() returns {len(gradients)} gradients, "
                f"expected: one for each of {len(expected)} inputs"
            )
        for part, value, given in zip(expected, gradients, inputs, strict=True):
            if not part.variadic and value is not None and given is not None and np.shape(value) != np.shape(given):
                raise DataError(
                    f"{self._shown}: {self._spec.name}_gradient() returns {np.shape(value)} for {part.name!r}, which "
                    f"has the shape {np.shape(given)}"
                )
        return gradients

    def _raised(self, error: Exception) -> str:
        line = line_in(self._path, error)
        return f"{self._shown}{f':{line}' if line else ''}: {type(error).__name__}: {error}"
