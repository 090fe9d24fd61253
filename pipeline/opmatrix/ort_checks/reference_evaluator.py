"""Evaluate a model with onnx.reference, and its custom operators with their reference.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from opmatrix.declaration.model_inputs import arguments
from opmatrix.declaration.torch_signature import as_float32, dtype_of, onnx_name
from opmatrix.declaration.variadic_outputs import with_outputs
from opmatrix.errors import VerifyError
from opmatrix.export.model_gates import as_tuples
from opmatrix.ort_checks.corrected_operators import CORRECTED
from opmatrix.spec import Attribute, AttributeValue, OpSpec
from opmatrix.testdata import truth
from opmatrix.testdata.arrays import Array, cast
from opmatrix.testdata.dtypes import numpy_dtype
from opmatrix.testdata.numpy_reference import Precision, Reference, types_of
from opmatrix.testdata.truth import Judge


class ReferenceRun:
    """A model in onnx.reference.ReferenceEvaluator; a `Session`.

    `precision`: in which the reference of the first operator is evaluated, as it was for the test data; None: that of
    `truth.evaluate`, for all operators. `judge` is then that of the last node. `independent`: whether no node is
    evaluated by a reference.py.
    """

    precision: Precision | None = None
    judge: Judge | None = None

    def __init__(self, model: onnx.ModelProto, operators: Sequence[tuple[OpSpec, Reference]]) -> None:
        """Raises VerifyError for a node that neither onnx.reference nor `operators` implements."""
        try:
            self._evaluator = ReferenceEvaluator(
                model, new_ops=[*CORRECTED, *(self._op_run(*o, own=o is operators[0]) for o in operators)]
            )
        except Exception as error:  # the operators of ReferenceEvaluator may raise anything
            raise VerifyError(f"the reference evaluator cannot read the model: {error}") from error
        custom = {(spec.onnx.domain, spec.onnx.op_type) for spec, _ in operators}
        self.independent = not any(
            (node.domain, node.op_type) in custom
            for nodes in (model.graph.node, *(function.node for function in model.functions))
            for node in _with_subgraphs(nodes)
        )

    def run(self, output_names: None, inputs: Mapping[str, Array], /) -> Sequence[Array]:
        """Evaluate the model. Raises VerifyError with the message of the operator that failed."""
        try:
            with np.errstate(all="ignore"):  # NaN and infinities propagate as in IEEE 754
                return list(self._evaluator.run(output_names, dict(inputs)))
        except Exception as error:
            raise VerifyError(f"the reference evaluator cannot run the model: {error}") from error

    def _op_run(self, spec: OpSpec, reference: Reference, *, own: bool) -> type[OpRun]:
        """Return the class that onnx.reference runs for the op type of the same name."""
        # A node may leave out an attribute that has its default; reference.py has no defaults.
        defaults = {a.name: as_float32(a, a.default) for a in spec.attributes if a.optional or a.default is not None}
        declared = {onnx_name(a): a for a in spec.attributes}

        def _load_attributes(node: Any) -> None:
            """Keep attributes apart: onnx sets them at the node, where one named "run" would replace its method."""
            node.apart, node.attributes_names_, node.has_linked_attribute = {}, set(), False
            if any(a.ref_attr_name for a in node.onnx_node.attribute):
                OpRun._load_attributes(node)
            else:
                node.apart = {a.name: node._extract_attribute_value(a) for a in node.onnx_node.attribute}

        def _run(node: Any, /, *inputs: Array | None, **linked: Any) -> tuple[Array, ...]:
            given = {
                declared[n].name: _as_declared(declared[n], v)
                for n, v in (node.apart | linked).items()
                if n in declared and v is not None
            }
            taken, values = tuple(arguments(spec, _as_in_torch(spec, inputs))), defaults | given
            if self.precision is None:
                found = truth.evaluate(reference, spec, types_of(spec, taken), taken, values)
                self.judge = found.judge
                return _as_in_node(spec, found.outputs)
            found_here = reference(taken, values, precision=self.precision if own else "declared dtype")
            return _as_in_node(spec, found_here)

        own_methods = {"_run": _run, "_load_attributes": _load_attributes}
        return type(spec.onnx.op_type, (OpRun,), {"op_domain": spec.onnx.domain, "op_schema": None, **own_methods})


def _as_in_torch(spec: OpSpec, inputs: Sequence[Array | None]) -> list[Array | None]:
    """Return the inputs of a node in the dtypes that the reference takes, which are those of torch."""
    last = spec.inputs[-1]
    of = [*spec.inputs, *[last] * (len(inputs) - len(spec.inputs))]
    return [
        array.astype(numpy_dtype(dtype_of(part.type, {}))) if part.onnx_type and array is not None else array
        for part, array in zip(of, inputs, strict=False)
    ]


def _as_in_node(spec: OpSpec, outputs: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a reference in the dtypes of the node. Raises DataError for what does not fit."""
    return tuple(
        cast(array, dtype_of(part.onnx_type, {})) if part.onnx_type else array
        for part, array in zip(with_outputs(spec, len(outputs)).outputs, outputs, strict=True)
    )


def _with_subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, and those within the branches of If and the bodies of loops."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _with_subgraphs(graph.node)


def _as_declared(attribute: Attribute, value: Any) -> AttributeValue:
    """Return an attribute as the declaration has it: ONNX has no bool, and onnx.reference passes lists."""
    if attribute.kind == "tensor":
        return as_tuples(np.asarray(value).tolist())  # type: ignore[no-any-return]  # of its values
    is_list = attribute.kind.endswith("s")
    items = [bool(v) if attribute.kind.startswith("bool") else v for v in (value if is_list else [value])]
    return tuple(items) if is_list else items[0]
