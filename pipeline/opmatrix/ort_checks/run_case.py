"""Run the cases of one model for verify: in ONNX Runtime sessions, in several threads, and in the evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import count
from pathlib import Path
from threading import Barrier
from time import monotonic
from typing import NamedTuple

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no stubs here
from onnx import parser

from opmatrix.basics import step_log
from opmatrix.basics.errors import VerifyError, missing
from opmatrix.data.arrays import Array
from opmatrix.data.compare import Comparison, first_difference, same_bytes
from opmatrix.data.dataset import DataSet
from opmatrix.data.reference import Reference
from opmatrix.judge.judge_case import ONE_THREAD, CaseRuns
from opmatrix.ort_checks.cast_edges import CastSession
from opmatrix.ort_checks.evaluator import ReferenceRun
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, Session, call, call_in_place
from opmatrix.spec import DType, OpSpec, Tolerance

THREADS = 4
ROUNDS = 8
SECONDS = 0.05
MOST_BYTES = 1 << 28  # that the runs of all threads have at once; two threads run in any case

Feed = Mapping[str, Array]
Outputs = tuple[Array, ...]


def run_concurrently(
    session: Session, feeds: Mapping[str, Feed], *, seconds: float = 0.0
) -> dict[str, Comparison | str]:
    """Run each feed alone, then all in several threads; return the difference or the error by the feed's name.

    Each thread begins with another feed, so that a buffer which the calls share holds the values of another feed. It
    compares each run as soon as it has ended, keeps no outputs, and of each feed the first difference. A feed that
    fails alone is left out. Without a difference there are `ROUNDS` rounds, more until `seconds` have passed, and fewer
    after `SECONDS`.
    """
    alone: dict[str, Outputs] = {}
    for name, feed in feeds.items():
        step_log.now_running(f"case {name}")
        if not isinstance(outputs := _outputs_or_error(session, feed), str):
            alone[name] = outputs
    if not alone:
        return {}
    threads = threads_for(max(bytes_of_run(session, feeds[name], outputs) for name, outputs in alone.items()))
    step_log.now_running(f"{', '.join(alone)} in {threads} threads at once")
    names, start = list(alone), Barrier(threads)

    def run(thread: int) -> dict[str, Comparison | str]:
        differences: dict[str, Comparison | str] = {}
        first = thread % len(names)
        start.wait()
        begin = monotonic()
        for turn in count(1):
            for name in names[first:] + names[:first]:
                if difference := _difference(session, feeds[name], alone[name]):
                    differences.setdefault(name, difference)
            passed = monotonic() - begin
            if differences or passed > SECONDS or (turn >= ROUNDS and passed >= seconds):
                break
        return differences

    with ThreadPoolExecutor(threads) as pool:
        by_thread = [*pool.map(run, range(threads))]
    return {name: difference for differences in reversed(by_thread) for name, difference in differences.items()}


def bytes_of_run(session: Session, feed: Feed, outputs: Outputs) -> int:
    """Return the memory of a run: that of its outputs, and of what casts make of its inputs."""
    return sum(array.nbytes for array in (*outputs, *(feed.values() if isinstance(session, CastSession) else ())))


def threads_for(largest: int) -> int:
    """Return in how many threads runs of so many bytes may be at once."""
    return max(2, min(THREADS, MOST_BYTES // max(largest, 1)))


def _difference(session: Session, feed: Feed, alone: Outputs) -> Comparison | str | None:
    """Run a feed once; return the error, or the first difference. The outputs are freed on return."""
    outputs = _outputs_or_error(session, feed)
    return outputs if isinstance(outputs, str) else first_difference(alone, outputs)


def _outputs_or_error(session: Session, feed: Feed) -> Outputs | str:
    try:
        return call(session, feed)
    except RefusedError as error:
        return str(error)


OPSET, IR = 17, 8  # of the warm-up's model: every supported ONNX Runtime reads them


class _Sessions(NamedTuple):
    """The sessions of a model by setting; and of the models whose nodes keep one optional output, by that output, with
    the outputs that are left."""

    whole: Mapping[str, Session]
    alone: Mapping[str, tuple[Sequence[str], Session]]


class ModelRunner:
    """One model, loaded once for all of its cases."""

    def __init__(
        self, path: Path, *, name: str, runtime: OrtSessions, operators: Sequence[tuple[OpSpec, Reference]]
    ) -> None:
        """Load a model of the operator `name`; `operators` are those that it has custom nodes of.

        Raises VerifyError where it is missing or damaged, RefusedError where ONNX Runtime rejects it.
        """
        try:
            content = path.read_bytes()
            model = onnx.ModelProto.FromString(content)
        except (FileNotFoundError, DecodeError) as error:
            run = f"python -m opmatrix export {name}"
            raise VerifyError(missing(path, run=run, problem="is not a readable model")) from error
        self._inputs = [i.name for i in model.graph.input]
        self._outputs = [o.name for o in model.graph.output]
        self._content, self._runtime = content, runtime
        declared = {(spec.onnx.domain, spec.onnx.op_type): spec for spec, _ in operators}
        self._in_place = _pairs(model, declared) if runtime.library else {}
        self._smaller = {
            kept: ([o.name for o in smaller.graph.output], smaller.SerializeToString())
            for kept, smaller in (_alone(model, declared) if runtime.library else ())
        }
        self._sessions = self._all_sessions()
        self._evaluator = ReferenceRun(model, operators)

    def _all_sessions(self, *, large: bool = False) -> _Sessions:
        whole = self._runtime.sessions(self._content, large=large)
        alone = {
            kept: (there, self._runtime.sessions(content, settings=[ONE_THREAD], large=large)[ONE_THREAD])
            for kept, (there, content) in self._smaller.items()
        }
        return _Sessions(whole=whole, alone=alone)

    @cached_property
    def _sessions_for_large(self) -> _Sessions:
        return self._all_sessions(large=True)

    def run_case(self, data: DataSet, tolerances: Mapping[DType, Tolerance], *, stored: bool = False) -> CaseRuns:
        """Run a data set twice per session, once in the evaluator. Raises RefusedError (ONNX Runtime), VerifyError.

        `stored`: it comes from a published version, which does not say in which precision it was evaluated.
        """
        for kind, has, given in (("input", self._inputs, data.inputs), ("output", self._outputs, data.outputs)):
            if has != list(given):
                raise VerifyError(
                    f"the model's {kind}s are {has}, those of the test data {list(given)}; "
                    "export the model and write the data again"
                )
        self._evaluator.precision = None if stored else data.judge.precision
        # The reference takes most memory, so that it computes a large case before there are other outputs.
        evaluated = self._evaluate(data) if data.large else None
        sessions = self._sessions_for_large if data.large else self._sessions
        fed = {name: array.copy() for name, array in data.inputs.items()}
        different: list[Outputs] = []

        def once(outputs: Outputs) -> Outputs:
            """Return the earlier outputs that these are equal to, so that a large case takes their memory once."""
            same = (e for e in different if all(map(same_bytes, e, outputs)))
            if (earlier := next(same, None)) is not None:
                return earlier
            different.append(outputs)
            return outputs

        outputs = {
            setting: (once(call(s, fed)), once(call(s, fed))) for setting, s in self._at_each_level(sessions.whole)
        }
        # Of a CastSession the edges are between nodes, where ONNX Runtime gives both the same memory by itself.
        direct = {setting: s for setting, s in sessions.whole.items() if not isinstance(s, CastSession)}
        at_once = self._in_place and all(array.size for array in fed.values())
        in_place = {setting: once(call_in_place(s, fed, self._in_place)) for setting, s in direct.items() if at_once}
        first = dict(zip(self._outputs, outputs[ONE_THREAD][0], strict=True))
        alone = {
            kept: tuple((first | dict(zip(there, call(session, fed), strict=True))).values())
            for kept, (there, session) in sessions.alone.items()
        }
        overwritten = [name for name, array in fed.items() if not same_bytes(array, data.inputs[name])]
        fed.clear()
        evaluated = evaluated or self._evaluate(data)
        if isinstance(evaluated, VerifyError):
            raise evaluated
        return CaseRuns(
            names=list(data.outputs),
            expected=tuple(data.outputs.values()),
            outputs=outputs,
            evaluated=evaluated,
            independent=self._evaluator.independent,
            judge=(stored and self._evaluator.judge) or data.judge,
            vectors=tuple(data.vectors.values()),
            tolerances=tolerances,
            overwritten=overwritten,
            in_place=in_place,
            alone=alone,
        )

    def _at_each_level(self, sessions: Mapping[str, Session]) -> Iterator[tuple[str, Session]]:
        """Yield each session with the name of its runs: all at the highest level of the processor, which remains, and
        one at each lower level for which the library has its kernels."""
        levels = self._runtime.levels
        for level in levels.each():
            if level in levels.names[:-1]:
                yield f"{ONE_THREAD} at {level}", sessions[ONE_THREAD]
            else:
                yield from sessions.items()

    def _evaluate(self, data: DataSet) -> Outputs | VerifyError:
        """Return the outputs of the reference evaluator, or its error, which comes after those of ONNX Runtime."""
        try:
            return call(self._evaluator, data.inputs)
        except VerifyError as error:
            return error

    def run_concurrently(self, data: Mapping[str, DataSet]) -> dict[str, Comparison | str]:
        """Run data sets in several threads of one session; return the differences from a run alone, by case."""
        large = any(d.large for d in data.values())
        session = (self._sessions_for_large if large else self._sessions).whole[ONE_THREAD]
        feeds = {case: {name: array.copy() for name, array in d.inputs.items()} for case, d in data.items()}
        if isinstance(session, CastSession):  # else each thread would have casts of its own
            feeds = {case: session.cast(feeds.pop(case)) for case in [*feeds]}
        return run_concurrently(session, feeds)


def _pairs(model: onnx.ModelProto, declared: Mapping[tuple[str, str], OpSpec]) -> dict[str, str]:
    """Return the model's outputs that may have the memory of one of its inputs, each with that input.

    Only the caller of a session can give both the same memory. Between nodes ONNX Runtime does, in each run.
    """
    inputs, outputs = ({value.name for value in values} for values in (model.graph.input, model.graph.output))
    read = [name for node in model.graph.node for name in node.input]
    pairs = {}
    for node in model.graph.node:
        if spec := declared.get((node.domain, node.op_type)):
            of = dict(zip([i.name for i in spec.inputs], node.input, strict=False))
            for output, made in zip(spec.outputs, node.output, strict=False):
                given = of.get(output.may_inplace or "", "")
                if given in inputs and made in outputs and read.count(given) == 1 and made not in read:
                    pairs[made] = given
    return pairs


def _alone(model: onnx.ModelProto, declared: Mapping[tuple[str, str], OpSpec]) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield each optional output of a node that has several, and the model whose node leaves out the others."""
    outputs = {value.name for value in model.graph.output}
    unread = outputs.difference(name for node in model.graph.node for name in node.input)
    for index, node in enumerate(model.graph.node):
        if spec := declared.get((node.domain, node.op_type)):
            parts = zip(spec.outputs, node.output, strict=False)
            optional = [name for part, name in parts if part.optional and name in unread]
            for kept in optional if len(optional) > 1 else ():
                left_out = {*optional} - {kept}
                smaller = onnx.ModelProto()
                smaller.CopyFrom(model)
                made = ["" if name in left_out else name for name in node.output]
                while not made[-1]:
                    made.pop()
                smaller.graph.node[index].output[:] = made
                there = [value for value in model.graph.output if value.name not in left_out]
                del smaller.graph.output[:]
                smaller.graph.output.extend(there)
                yield kept, smaller


def warm_up() -> None:
    """Build what a process's first session and evaluator build, 10 ms, before it forks. Starts no thread."""
    header = f'<ir_version: {IR}, opset_import: ["": {OPSET}]>'
    model = parser.parse_model(f"{header} warm_up (float[1] x) => (float[1] y) {{ y = Identity(x) }}")
    feed = {"x": np.zeros(1, np.float32)}
    sessions = OrtSessions(None).sessions(model.SerializeToString(), settings=[ONE_THREAD])
    for session in (*sessions.values(), ReferenceRun(model, ())):
        call(session, feed)
