"""The second oracle: the model itself, evaluated by onnx.reference with reference.py as the custom op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from opmatrix.declaration.model_inputs import arguments
from opmatrix.declaration.torch_signature import as_float32
from opmatrix.errors import VerifyError
from opmatrix.spec import Attribute, AttributeValue, OpSpec
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.numpy_reference import Reference


class ReferenceRun:
    """A model in ReferenceEvaluator; a `Session`."""

    def __init__(self, model: onnx.ModelProto, operators: Sequence[tuple[OpSpec, Reference]]) -> None:
        """Prepare it. Raises VerifyError for a node that neither onnx.reference nor one of `operators` knows."""
        try:
            self._evaluator = ReferenceEvaluator(model, new_ops=[_op_run(*operator) for operator in operators])
        except Exception as error:  # ReferenceEvaluator raises whatever its operators do
            raise VerifyError(f"the reference evaluator cannot read the model: {error}") from error

    def run(self, output_names: None, inputs: Mapping[str, Array], /) -> Sequence[Array]:
        """Evaluate the model. Raises VerifyError with the message of the operator that failed."""
        try:
            with np.errstate(all="ignore"):  # NaN and infinities go through as IEEE 754 has it
                return list(self._evaluator.run(output_names, dict(inputs)))
        except Exception as error:
            raise VerifyError(f"the reference evaluator cannot run the model: {error}") from error


def _op_run(spec: OpSpec, reference: Reference) -> type[OpRun]:
    """Return the custom op as onnx.reference wants it: a class that is named as the op type."""
    # A node need not carry an attribute that has its default; the reference has no defaults.
    defaults = {a.name: as_float32(a, a.default) for a in spec.attributes if a.default is not None}
    declared = {a.name: a for a in spec.attributes}

    def _run(self: OpRun, *inputs: Array | None, **attributes: Any) -> tuple[Array, ...]:
        given = {n: _as_declared(declared[n], v) for n, v in attributes.items() if n in declared and v is not None}
        return reference(tuple(arguments(spec, inputs)), defaults | given)

    return type(spec.onnx.op_type, (OpRun,), {"op_domain": spec.onnx.domain, "_run": _run})


def _as_declared(attribute: Attribute, value: Any) -> AttributeValue:
    """Return what a node holds as the declaration has it: ONNX knows no bools, and onnx.reference gives lists."""
    items = [bool(v) if attribute.kind.startswith("bool") else v for v in (value if _many(attribute) else [value])]
    return tuple(items) if _many(attribute) else items[0]


def _many(attribute: Attribute) -> bool:
    return attribute.kind.endswith("s")
