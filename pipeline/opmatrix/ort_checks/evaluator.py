"""Evaluate a model with onnx.reference, its custom operators with their reference.py, and with own classes the
operators that onnx.reference 1.23 computes otherwise than ONNX describes them, or not in memory. No runtime."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_conv import Conv as ConvOfOnnx

from opmatrix.basics.errors import VerifyError
from opmatrix.data import truth
from opmatrix.data.arrays import Array, cast, numpy_dtype
from opmatrix.data.reference import Precision, Reference, types_of
from opmatrix.data.truth import Judge
from opmatrix.declaration.models import arguments
from opmatrix.export.gates import as_tuples
from opmatrix.signature.signature import as_float32, dtype_of, onnx_name
from opmatrix.sizes.variadic import with_outputs
from opmatrix.spec import Attribute, AttributeValue, OpSpec

_COLUMNS = 1 << 22  # elements of the matrix in which onnx.reference computes a Conv; it takes 30 bytes for each
_BLOCK = 1 << 17  # positions of an output that are computed at once


class LRN(OpRun):
    """onnx.reference normalizes as many channels as there are images."""

    op_domain = ""

    def _run(
        self, x: Array, alpha: Any = None, beta: Any = None, bias: Any = None, size: Any = None
    ) -> tuple[Array, ...]:
        alpha, beta, bias = (
            default if given is None else given for given, default in ((alpha, 1e-4), (beta, 0.75), (bias, 1.0))
        )
        squares = x.astype(np.float64) ** 2
        before, behind = (size - 1) // 2, -((1 - size) // 2)
        sums = [squares[:, max(0, c - before) : c + behind + 1].sum(axis=1) for c in range(x.shape[1])]
        result = x / (bias + alpha / size * np.stack(sums, axis=1)) ** beta
        return (result.astype(x.dtype),)


class GlobalMaxPool(OpRun):
    """onnx.reference reduces two axes alone."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array, ...]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class Conv(ConvOfOnnx):
    """onnx.reference copies the input for each place of the kernel. A large one is the sum over these places here, in
    float64, a block of the output at a time."""

    op_domain = ""

    def _run(
        self,
        X: Array,  # noqa: N803 - the names of ONNX
        W: Array,  # noqa: N803
        B: Array | None = None,  # noqa: N803
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int | None = None,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[Array, ...]:
        kernel, groups = W.shape[2:], group or 1
        ones = [1] * len(kernel)
        steps, gaps = strides or ones, dilations or ones
        sizes = X.shape[2:]
        spans = [(k - 1) * gap + 1 for k, gap in zip(kernel, gaps, strict=False)]
        borders = list(zip(*np.reshape(pads or [0, 0] * len(kernel), (2, -1)).tolist(), strict=True))
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            wanted = [max(0, -(-n // s) * s - s + span - n) for n, s, span in zip(sizes, steps, spans, strict=False)]
            borders = [(n // 2, n - n // 2) if auto_pad == "SAME_UPPER" else (n - n // 2, n // 2) for n in wanted]
        elif auto_pad == "VALID":
            borders = [(0, 0)] * len(kernel)
        padded = [n + sum(border) for n, border in zip(sizes, borders, strict=False)]
        made = [(n - span) // s + 1 for n, s, span in zip(padded, steps, spans, strict=False)]
        if math.prod((len(X), *W.shape[1:], groups, *made)) <= _COLUMNS:
            return super()._run(X, W, B, auto_pad, dilations, group, kernel_shape, pads, strides)  # type: ignore[no-any-return, no-untyped-call]
        x = np.pad(X, [(0, 0), (0, 0), *borders]).reshape(len(X), groups, -1, *padded)
        w = W.reshape(groups, -1, *W.shape[1:]).astype(np.float64)
        result = np.empty((len(X), groups, w.shape[1], *made), X.dtype)
        bias = 0.0 if B is None else B.astype(np.float64).reshape(groups, -1, 1)
        rows = max(1, _BLOCK // math.prod(made[1:]))
        for image in range(len(X)):
            for row in range(0, made[0], rows):
                block = [min(rows, made[0] - row), *made[1:]]
                total = np.zeros((groups, w.shape[1], math.prod(block))) + bias
                for place in np.ndindex(*kernel):
                    first = [at * gap for at, gap in zip(place, gaps, strict=True)]
                    first[0] += row * steps[0]
                    taken: tuple[Any, ...] = tuple(
                        slice(f, f + (n - 1) * s + 1, s) for f, n, s in zip(first, block, steps, strict=True)
                    )
                    part = x[image][(slice(None), slice(None), *taken)].astype(np.float64)
                    total += w[(..., *place)] @ part.reshape(*part.shape[:2], -1)
                result[image, :, :, row : row + rows] = total.reshape(*total.shape[:2], *block)
        return (result.reshape(len(X), -1, *made),)


CORRECTED = (LRN, GlobalMaxPool, Conv)


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
            # The inputs have the dtypes of the node, the reference takes those of torch.
            parts = [*spec.inputs, *[spec.inputs[-1]] * (len(inputs) - len(spec.inputs))]
            in_torch = [
                array.astype(numpy_dtype(dtype_of(part.type, {}))) if part.onnx_type and array is not None else array
                for part, array in zip(parts, inputs, strict=False)
            ]
            taken, values = tuple(arguments(spec, in_torch)), defaults | given
            if self.precision is None:
                found = truth.evaluate(reference, spec, types_of(spec, taken), taken, values)
                self.judge = found.judge
                return _as_in_node(spec, found.outputs)
            found_here = reference(taken, values, precision=self.precision if own else "declared dtype")
            return _as_in_node(spec, found_here)

        members = {"op_domain": spec.onnx.domain, "op_schema": None, "_run": _run, "_load_attributes": _load_attributes}
        return type(spec.onnx.op_type, (OpRun,), members)


def _as_in_node(spec: OpSpec, outputs: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs of a reference in the dtypes of the node. Raises DataError for what does not fit."""
    return tuple(
        cast(array, dtype_of(part.onnx_type, {})) if part.onnx_type else array
        for part, array in zip(with_outputs(spec, len(outputs)).outputs, outputs, strict=True)
    )


def _with_subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
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
