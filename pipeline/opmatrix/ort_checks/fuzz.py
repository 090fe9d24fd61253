"""Run an operator's node in ONNX Runtime on drawn inputs and on invalid calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ModelProto, helper

from opmatrix.basics import step_log
from opmatrix.basics.errors import DataError
from opmatrix.data.arrays import Array, cast, dtype_name, numpy_dtype
from opmatrix.data.case_arrays import case_arrays, described, elements
from opmatrix.data.compare import Comparison, first_difference, same_bytes
from opmatrix.data.reference import Reference, tensors
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import case_arguments
from opmatrix.export.signature import attributes, model_of
from opmatrix.judge.message import over_cases
from opmatrix.judge.rounding import difference
from opmatrix.ort_checks.cast_edges import CastSession
from opmatrix.ort_checks.run_case import run_concurrently
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, Session, call, call_into
from opmatrix.project.paths import Paths
from opmatrix.search.drawn import DrawnCase, keep
from opmatrix.search.invalid_calls import Call, invalid_calls, missing_calls, valid_call, valid_call_fails
from opmatrix.search.larger_inputs import ENOUGH, large_pair
from opmatrix.signature.signature import dtype_of, has_kernel, has_onnx_types, node_type
from opmatrix.sizes.variadic import count, counter, variadic_output, with_count, with_outputs
from opmatrix.spec import Attribute, Model, OpSpec

OPSET = 17  # every supported ONNX Runtime reads it
LONG = 0.03  # seconds that several threads run large inputs for
FEW = 5  # problems in a message: further ones are mostly equal


def first_problems(problems: Sequence[str]) -> str:
    """Return the first lines of a message, and how many more there are."""
    more = [f"and {len(problems) - FEW} more"] if len(problems) > FEW else []
    return "\n".join([*problems[:FEW], *more])


class Fuzz:
    """One-node models without sizes or ranks, so that calls share sessions."""

    def __init__(self, operator: Operator, runtime: OrtSessions) -> None:
        self._operator, self._runtime = operator, runtime
        self._sessions: dict[object, Session | RefusedError] = {}

    def drawn_problem(self, one: DrawnCase, reference: Reference) -> str:
        """Return how the kernel fails on a drawn input, or "", at the first level where it does. That one remains."""
        step_log.now_running(str(one))
        for level in self._runtime.levels.each():
            if found := self._drawn_problem(one, reference):
                return f"at {level} {found}" if level else found
        return ""

    def _drawn_problem(self, one: DrawnCase, reference: Reference) -> str:
        spec, given = self._operator.spec, [array.copy() for array in one.arrays]
        try:
            actual, again = self._run_twice(drawn_call(spec, one.model, given))
        except RefusedError as error:
            return f"the kernel rejects what the reference computes: {error}" if one.expected is not None else ""
        if one.expected is None:
            return f"the kernel computes what the reference rejects: {one.refusal}"
        if not all(map(same_bytes, given, one.arrays)):
            return "the kernel writes into its input"
        if wrong := difference(spec, one, actual, reference):
            return wrong
        if found := first_difference(actual, again, [f"{o.name}: " for o in with_outputs(spec, len(actual)).outputs]):
            return f"the second run gives other numbers than the first: {found}. The kernel leaves elements unwritten"
        return ""

    def measure(self, one: DrawnCase, reference: Reference) -> dict[str, Any] | None:
        """Return what the report shows of a failing drawn input: where its outputs differ, if they do."""
        from opmatrix.judge import mismatch  # which only a failing case needs

        spec = self._operator.spec
        try:
            first, again = self._run_twice(drawn_call(spec, one.model, one.arrays))
        except RefusedError:
            return None
        wrong = difference(spec, one, first, reference) != ""
        return mismatch.of_drawn(spec, one, {"ONNX Runtime": first, "ONNX Runtime, again": again}, wrong=wrong)

    def smallest_failing(
        self, paths: Paths, drawn: Iterable[DrawnCase], reference: Reference
    ) -> tuple[DrawnCase, str] | None:
        """Return the smallest drawn input on which the kernel fails, with the message; None where it fails on none."""
        # No smaller one is searched for: the environment of another ONNX Runtime has no hypothesis.
        tried = [(one, self.drawn_problem(one, reference)) for one in drawn]
        failing = [(one, problem) for one, problem in tried if problem]
        if not failing:
            return None
        from opmatrix.judge.case_facts import in_common_of_drawn  # which only a failure needs

        problems = {one.model.name: problem for one, problem in tried}
        in_common = in_common_of_drawn(
            self._operator.spec, [one for one, _ in tried], lambda drawn: problems[drawn.model.name]
        )
        one, problem = min(failing, key=lambda pair: sum(array.size for array in pair[0].arrays))
        which = "The smallest of the random inputs that fail"
        said = keep(paths, self._operator, one, problem, where="ONNX Runtime", which=which)
        return one, "\n".join([said, *over_cases(in_common)])

    def invalid_call_problems(self) -> Iterator[str]:
        """Yield every invalid call that raises no error, and what no case allows to try; or why they prove nothing."""
        try:
            self.run(replace(valid_call(self._operator), typed=True))
        except RefusedError as error:
            yield valid_call_fails(self._operator, "ONNX Runtime", error)
            return
        yield from missing_calls(self._operator)
        for one in invalid_calls(self._operator):
            try:
                has_node = bool(dict(node_feeds(self._operator.spec, one.call)))
            except DataError:  # 9 in an int8 of torch is no int4
                continue
            if not has_node:
                continue
            step_log.now_running(f"the invalid call with {one}")
            try:
                self.run(replace(one.call, typed=one.kind != "dtype"))  # of another dtype the outputs have no known one
            except RefusedError:
                continue
            yield f"{self._operator.name} in ONNX Runtime computes what its declaration forbids: {one}"

    def run(self, node_call: Call) -> tuple[Array, ...]:
        """Return the node's outputs. Raises RefusedError where ONNX Runtime rejects the model or the run."""
        return self._in_torch(call(*self.session(node_call)))

    def _in_torch(self, outputs: Sequence[Array]) -> tuple[Array, ...]:
        """Return the outputs of a node in the dtypes that torch, the kernel and the reference have."""
        if not has_onnx_types(self._operator.spec):
            return tuple(outputs)
        parts = with_outputs(self._operator.spec, len(outputs)).outputs
        return tuple(a.astype(o.type) if o.onnx_type else a for o, a in zip(parts, outputs, strict=True))

    def _run_twice(self, node_call: Call) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Run the node, then with outputs in memory that is not 0: new memory mostly is, as many results are."""
        session: Any
        session, feeds = self.session(node_call)
        first = self._in_torch(call(session, feeds))
        if isinstance(session, CastSession) or any(array.dtype == object for array in (*feeds.values(), *first)):
            return first, self._in_torch(call(session, feeds))
        memory = {
            output.name: np.full(array.nbytes, 1 if array.dtype == bool else 0xA5, np.uint8)
            .view(array.dtype).reshape(array.shape)
            for output, array in zip(session.get_outputs(), first, strict=True) if array.size
        }  # fmt: skip
        contiguous = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in feeds.items()}
        return first, call_into(session, contiguous, memory)

    def session(self, node_call: Call) -> tuple[Session, dict[str, Array]]:
        """Return the session of a node for a call, and its feed. Raises RefusedError."""
        feeds = dict(node_feeds(self._operator.spec, node_call))
        key = (repr(node_call.model.attributes), node_call.typed, tuple((n, dtype_name(a)) for n, a in feeds.items()))
        if key not in self._sessions:
            model = node_model(self._operator.spec, node_call).SerializeToString()
            try:
                self._sessions[key] = self._runtime.sessions(model, settings=("optimised",))["optimised"]
            except RefusedError as error:
                self._sessions[key] = error
        session = self._sessions[key]
        if isinstance(session, RefusedError):
            raise session
        return session, feeds


def drawn_call(spec: OpSpec, model: Model, arrays: Sequence[Array]) -> Call:
    """Return the call of a drawn model with these arrays."""
    return Call(model=model, inputs=tuple(case_arguments(spec, model.cases[0], arrays)), typed=True)


def run_enlarged(operator: Operator, model: Model, runtime: OrtSessions) -> dict[str, Comparison | str]:
    """Run the largest case of an operator in several threads, made larger: calls of small ones hardly overlap.

    Return the difference from a run alone by the name of the case; none for another model than that of the case.
    """
    spec = operator.spec
    if not has_kernel(spec):
        return {}
    runs = [(m, c) for m in operator.models if not m.unsupported for c in m.cases if described(c)]
    of, case = max(runs, key=lambda pair: sum(elements(pair[1])), default=(None, None))
    if of is not model or case is None or sum(elements(case)) >= ENOUGH:
        return {}
    fuzz, feeds = Fuzz(operator, runtime), dict[str, Mapping[str, Array]]()

    def called(arrays: Sequence[Array]) -> Call:
        return Call(model=model, inputs=tuple(case_arguments(spec, case, arrays)))

    def compute(arrays: Sequence[Array]) -> Sequence[Array] | None:
        with suppress(RefusedError):
            return fuzz.run(called(arrays))
        return None

    step_log.now_running(f"case {case.name}, its inputs repeated")
    for arrays in large_pair(spec, model, case, case_arrays(spec, model, case), compute):
        shown = f"{sum(array.size for array in arrays)} elements"
        session, feeds[f"{shown} in reversed order" if shown in feeds else shown] = fuzz.session(called(arrays))
    for shown, found in (run_concurrently(session, feeds, seconds=LONG) if feeds else {}).items():
        begin = f"its inputs repeated to {shown}: "
        return {case.name: replace(found, subject=begin) if isinstance(found, Comparison) else begin + found}
    return {}


def node_feeds(spec: OpSpec, node_call: Call) -> Iterator[tuple[str, Array]]:
    """Yield the name of each input of the node, and its array. Raises DataError for a number that its dtype does not
    hold."""
    for part, argument in zip(spec.inputs, node_call.inputs, strict=True):
        if isinstance(argument, tuple):
            names = [f"{part.name}_{n}" for n in range(len(argument))]
        else:
            names = [part.name] if argument is not None else []
        for name, array in zip(names, tensors(argument), strict=True):
            yield name, cast(array, part.onnx_type) if part.onnx_type and dtype_name(array) == part.type else array


def node_model(spec: OpSpec, node_call: Call) -> ModelProto:
    """Return a model of the operator's node, without shapes."""
    feeds = dict(node_feeds(spec, node_call))
    newest = spec.onnx.versions[-1]  # it has all attributes
    names = [part.name if part.name in feeds else "" for part in spec.inputs if not part.variadic]
    names += [name for name in feeds if name not in names]
    while not names[-1] and not any(part.variadic for part in spec.inputs):  # as declaration.models.node_inputs
        names.pop()
    called = spec
    if variadic_output(spec):  # also of an invalid call a node has at least one
        named, part = dict(zip((i.name for i in spec.inputs), node_call.inputs, strict=True)), counter(spec)
        unknown = isinstance(part, Attribute) and node_call.model.attributes.get(part.name, part.default) is None
        called = with_count(spec, 1 if unknown else max(1, count(spec, named, node_call.model.attributes)))
    outputs = [output.name for output in called.outputs]
    node = helper.make_node(spec.onnx.op_type, names, outputs, domain=spec.onnx.domain)
    node.attribute.extend(attributes(spec, replace(node_call.model, domain_version=newest)))
    fed = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)
        for name, array in feeds.items()
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    if node_call.typed:  # which ONNX Runtime 1.16 needs where an input before the last is absent
        dtypes = [numpy_dtype(dtype_of(node_type(output), node_call.model.types)) for output in called.outputs]
        elements = map(helper.np_dtype_to_tensor_dtype, dtypes)
        made = [helper.make_tensor_value_info(*both, None) for both in zip(outputs, elements, strict=True)]
    return model_of(node, fed, made, name=spec.name, opset=OPSET, version=newest)
