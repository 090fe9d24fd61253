"""The reference of an operator: how it is found, called, and held to the declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opmatrix.declaration.torch_signature import dtype_of
from opmatrix.errors import DataError
from opmatrix.files import line_in, load_module
from opmatrix.project.paths import Paths
from opmatrix.spec import AttributeValue, DType, OpSpec
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.dtypes import numpy_dtype

# What the reference takes for one input: None for an absent one, a tuple for a variadic one.
Argument = Array | tuple[Array, ...] | None

# NumPy's kinds of dtype that may be cast to a declared one. A float takes every number (bfloat16 is of kind V).
_ACCEPTED = {"b": "b", "i": "biu", "u": "biu", "O": "OU"}


class Reference:
    """The function of reference.py that is named as the operator."""

    def __init__(self, layout: Paths, spec: OpSpec) -> None:
        """Load it. Raises DataError where the file is missing, cannot be run, or has no such function."""
        self._spec = spec
        self._path = layout.reference(spec.name)
        self._shown = str(self._path.relative_to(layout.root))
        self._function = self._load()

    def __call__(self, inputs: Sequence[Argument], attributes: Mapping[str, AttributeValue]) -> tuple[Array, ...]:
        """Return the outputs, each cast to its declared dtype.

        `attributes` by their ONNX names, floats rounded to float32. Raises DataError where the reference raises,
        gives another number of outputs, or one whose kind of number is not the declared one.
        """
        try:
            result = self._function(*inputs, **attributes)
        except Exception as error:  # whatever a person's file raises is theirs to see, with its line
            raise DataError(self._raised(error)) from error
        outputs = result if isinstance(result, tuple) else (result,)
        if len(outputs) != len(self._spec.outputs):
            raise DataError(f"{self._shown}: gives {len(outputs)} outputs, declared: {len(self._spec.outputs)}")
        types = _types(self._spec, inputs)
        return tuple(
            self._cast(np.asarray(output), part.name, dtype_of(part.type, types))
            for output, part in zip(outputs, self._spec.outputs, strict=True)
        )

    def _load(self) -> Callable[..., Any]:
        try:
            module = load_module(self._path, "reference")
        except FileNotFoundError as error:
            raise DataError(f"{self._shown}: missing; it defines {self._spec.name}() in NumPy") from error
        except Exception as error:
            raise DataError(self._raised(error)) from error
        function = getattr(module, self._spec.name, None)
        if not callable(function):
            raise DataError(f"{self._shown}: no function named {self._spec.name}(); the operator's name is expected")
        return function  # type: ignore[no-any-return]

    def _raised(self, error: Exception) -> str:
        """Return ``ops/name/reference.py:12: ValueError: why``, with the last line of it that `error` came through."""
        line = line_in(self._path, error)
        return f"{self._shown}{f':{line}' if line else ''}: {type(error).__name__}: {error}"

    def _cast(self, output: Array, name: str, dtype: DType) -> Array:
        target = numpy_dtype(dtype)
        if not _fits(output, target):
            raise DataError(f"{self._shown}: output {name!r} is {dtype_name(output)}, declared: {dtype}")
        with np.errstate(all="ignore"):  # beyond the range of the declared dtype is infinite there, too
            return output.astype(target, order="C")


def _types(spec: OpSpec, inputs: Sequence[Argument]) -> dict[str, DType]:
    """Return the binding of the type variables that `inputs` follow; one that only absent inputs have is not bound."""
    names: dict[str, str] = {}
    for part, argument in zip(spec.inputs, inputs, strict=True):
        for array in argument if isinstance(argument, tuple) else () if argument is None else (argument,):
            names.setdefault(part.type, dtype_name(array))
    return {variable: names[variable] for variable in spec.types if variable in names}  # type: ignore[misc]


def _fits(output: Array, target: np.dtype[Any]) -> bool:
    """Return whether `output` is of the kind of `target`, or of a lesser one: no number may turn into another."""
    if output.dtype == target:
        return True
    if output.dtype.kind not in _ACCEPTED.get(target.kind, "biuf"):
        return False
    return target.kind not in "iu" or bool((output.astype(target) == output).all())
