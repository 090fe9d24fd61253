"""Run the operator's node in ONNX Runtime on drawn inputs, and on what its declaration forbids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx import ModelProto, helper

from opmatrix.declaration.load import Operator
from opmatrix.declaration.model_inputs import case_arguments
from opmatrix.export.one_node_model import attributes
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, Session, call
from opmatrix.spec import Model, OpSpec
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.drawn_cases import DrawnCase
from opmatrix.testdata.invalid_calls import Call, invalid_calls

OPSET, IR_VERSION = 17, 8  # any that every ONNX Runtime reads


class Fuzz:
    """Sessions of one-node models, each made once: neither sizes nor ranks stand in them."""

    def __init__(self, operator: Operator, runtime: OrtSessions) -> None:
        self._operator, self._runtime = operator, runtime
        self._sessions: dict[object, Session | RefusedError] = {}

    def drawn_problems(self, tried: list[DrawnCase]) -> Iterator[str]:
        """Yield where ONNX Runtime and the reference do not refuse the same inputs, or outputs are not alike."""
        for one in tried:
            inputs = tuple(case_arguments(self._operator.spec, one.model.cases[0], one.numbers))
            try:
                actual = self.run(Call(model=one.model, inputs=inputs))
            except RefusedError as error:
                if one.expected is not None:
                    yield self._says(one.model, f"refuses what the reference computes: {error}")
                continue
            if one.expected is None:
                yield self._says(one.model, f"computes what the reference refuses: {one.refusal}")
            elif list(map(_kind, actual)) != list(map(_kind, one.expected)):
                found, wanted = map(_kind, actual), map(_kind, one.expected)
                yield self._says(one.model, f"gives {', '.join(found)}, the reference {', '.join(wanted)}")

    def illegal_problems(self) -> Iterator[str]:
        """Yield every forbidden call that is answered."""
        for one in invalid_calls(self._operator):
            try:
                self.run(one.call)
            except RefusedError:
                continue
            yield f"{self._operator.name} in ONNX Runtime computes what its declaration forbids: {one}"

    def run(self, given: Call) -> tuple[Array, ...]:
        """Return what the node gives. Raises RefusedError where ONNX Runtime refuses the model or the run."""
        feeds = dict(_feeds(self._operator.spec, given))
        key = (repr(given.model.attributes), tuple((name, dtype_name(a)) for name, a in feeds.items()))
        if key not in self._sessions:
            self._sessions[key] = self._session(node_model(self._operator.spec, given))
        session = self._sessions[key]
        if isinstance(session, RefusedError):
            raise session
        return call(session, feeds)

    def _session(self, model: ModelProto) -> Session | RefusedError:
        try:
            return self._runtime.sessions(model.SerializeToString(), settings=("optimised",))["optimised"]
        except RefusedError as error:
            return error

    def _says(self, model: Model, what: str) -> str:
        return f"{self._operator.name}-{model.name} in ONNX Runtime: it {what}"


def _kind(array: Array) -> str:
    return f"{dtype_name(array)} {array.shape}"


def _feeds(spec: OpSpec, given: Call) -> Iterator[tuple[str, Array]]:
    for part, argument in zip(spec.inputs, given.inputs, strict=True):
        if isinstance(argument, tuple):
            yield from ((f"{part.name}_{n}", array) for n, array in enumerate(argument))
        elif argument is not None:
            yield part.name, argument


def node_model(spec: OpSpec, given: Call) -> ModelProto:
    """Return a model of the operator's node that says nothing about shapes."""
    feeds = dict(_feeds(spec, given))
    newest = spec.onnx.versions[-1]  # which has every attribute that was drawn
    names = [part.name if part.name in feeds else "" for part in spec.inputs if not part.variadic]
    names += [name for name in feeds if name not in names]
    while not (
        names[-1] or any(part.variadic for part in spec.inputs)
    ):  # as in opmatrix.declaration.model_inputs.node_inputs
        names.pop()
    outputs = [output.name for output in spec.outputs]
    node = helper.make_node(spec.onnx.op_type, names, outputs, domain=spec.onnx.domain)
    node.attribute.extend(attributes(spec, replace(given.model, domain_version=newest)))
    fed = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)
        for name, array in feeds.items()
    ]
    graph = helper.make_graph([node], spec.name, fed, [helper.make_empty_tensor_value_info(name) for name in outputs])
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(spec.onnx.domain, newest)]
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
