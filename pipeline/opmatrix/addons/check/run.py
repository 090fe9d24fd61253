"""Run a model in ONNX Runtime with its libraries, and compare its outputs with the expected. Never imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from opmatrix.addons.check.arguments import parse_shapes, shape_words
from opmatrix.addons.check.float64_judge import explained_by_rounding
from opmatrix.addons.check.functions import or_as_it_is
from opmatrix.addons.check.graph_walk import node_label
from opmatrix.addons.check.implementations import agreeing, named
from opmatrix.addons.check.inputs import ModelInputs, drawn_inputs, find_inputs, given_inputs, tolerances
from opmatrix.addons.check.nodes import declared_operators, random_nodes
from opmatrix.addons.check.run_model import PLAIN, Runs, compare_settings, compare_with_expected
from opmatrix.addons.check.run_model import run as run_model
from opmatrix.basics import finding
from opmatrix.basics.errors import OpmatrixError, UsageError, VerifyError
from opmatrix.basics.finding import OPTIMIZER, Finding
from opmatrix.ort_checks.sessions import OrtSessions, call
from opmatrix.project.paths import Paths
from opmatrix.spec import Tolerance

PART = "run.json"


def run(
    paths: Paths,
    *,
    model: Path,
    libraries: Sequence[Path],
    inputs: Path | None,
    shapes: Sequence[str],
    against: Path | None,
    rtol: float | None,
    atol: float | None,
    of: str,
    into: Path,
    died: str = "",
) -> None:
    """Write the findings; `of` is the origin of the outputs in test_data_set_0, such as "torch 2.13", or "".

    `died`: how a process died with the optimised graph, which is left out. `against`: a model whose outputs are the
    expected ones.
    """
    findings: list[Finding] = []
    known: dict[str, Any] = {"error": "", "ran": False, "missing": False, "inputs": "", "shapes": []}
    try:
        original = onnx.load_model(model, load_external_data=False)
        specs = [o.spec for o in declared_operators(paths).operators]
        proto = or_as_it_is(original, specs)
        chosen = parse_shapes(shapes)
        given = [] if chosen else given_inputs(proto, model, inputs)
        runtime = OrtSessions(None, more=libraries)
        runs = run_model(model, original, runtime, given or drawn_inputs(proto, specs, chosen), died=died)
        limits = tolerances(rtol, atol)
        if not runs.ok and not runs.missing:
            with suppress(OpmatrixError):  # such as inputs that cannot be drawn: the refusal stays the finding
                fed = runs.refused or find_inputs(proto, model, inputs, specs, chosen)
                runs = _vindicated(runs, agreeing(model, fed, runtime, specs, limits))
        findings += [runs.finding, *runs.sizes]
        known["missing"] = runs.missing
        known["random"] = runs.ok and any(True for _ in random_nodes(proto))
        # ONNX Runtime may refuse calls of functions. Their nodes are compared in place of the calls, also then.
        known["ran"] = runs.ok or (bool(original.functions) and runs.refused is None)
        compared = list(_compared(proto, runs, limits, of, _Original(against, runtime)))
        at = next((at for at, found in enumerate(compared) if any(f.mark == "wrong" for f in found)), 0)
        for found in compared[at] if compared else ():
            by_optimizer = found.question == OPTIMIZER
            findings.append(named(found, model, runtime, runs.done[at], limits) if by_optimizer else found)
        if runs.ok:
            fed = runs.done[at].fed
            known["inputs"] = str(fed.file or "")
            known["shapes"] = shape_words(fed.shapes)
    except VerifyError as mistake:  # a library that cannot be loaded
        findings.append(finding.wrong("runs", str(mistake)))
    except OpmatrixError as mistake:
        known["error"] = str(mistake)
    marks = {f.question: f.mark for f in findings}
    differs = any(f.question == "agrees" and f.mark == "wrong" for f in findings)
    finding.write(
        into / PART,
        findings,
        differs=differs,
        agrees=marks.get("agrees") == "ok",
        **known,
    )


def _vindicated(runs: Runs, others: Sequence[str]) -> Runs:
    """Return what ONNX Runtime refuses as its own fault, where two others agree."""
    if not others:
        return runs
    text = f"{runs.finding.text}. But {' and '.join(others)} agree with each other: two of three do"
    inlined = "Inline the functions: onnx.inliner.inline_local_functions(model)"
    remedy = f"The model may be right. {inlined if 'inlined' in others[-1] else 'Report it to ONNX Runtime'}"
    return replace(runs, finding=finding.wrong("runs", text, remedy), missing=True)


class _Original:
    """The model of --against, or none."""

    def __init__(self, path: Path | None, runtime: OrtSessions) -> None:
        self.path, self._runtime = path, runtime

    def outputs(self, fed: ModelInputs) -> Mapping[str, Any]:
        """Return its outputs by name. Raises UsageError where it does not run with these inputs."""
        assert self.path
        proto = onnx.load_model(self.path, load_external_data=False)
        try:
            session = self._runtime.sessions(str(self.path), settings=[PLAIN])[PLAIN]
            values = call(session, fed.inputs)
        except VerifyError as error:
            raise UsageError(f"--against {self.path}: {error}") from error
        return dict(zip((o.name for o in proto.graph.output), values, strict=True))


def _compared(
    proto: ModelProto, runs: Runs, limits: Mapping[str, Tolerance], of: str, original: _Original
) -> Iterator[list[Finding]]:
    """Yield the findings for each input with which the model was run."""
    if runs.ok and (node := next(random_nodes(proto), None)):
        yield [finding.note("agrees", f"the outputs are random ({node_label(node)}), so they are not compared")]
        return
    for run in runs.done:
        fed, answers = run.fed, run.answers
        broken = [finding.wrong(OPTIMIZER, run.broken)] if run.broken else []
        if original.path:
            expected, whom = original.outputs(fed), original.path.name
        else:
            expected, whom = fed.expected, of or fed.source.removeprefix("from ")
        if expected:
            found = list(compare_with_expected(proto, answers, expected, limits, of=whom))
            outputs = {o.name: v for o, v in zip(proto.graph.output, run.outputs, strict=True) if o.name in expected}
            differs = any(f.mark == "wrong" for f in found)
            if differs and explained_by_rounding(proto, fed.inputs, outputs, expected, limits):
                found = [finding.ok("agrees", f"with {whom}, but for what the rounding of the inputs explains")]
            yield [*broken, *found]
        else:
            yield broken or list(compare_settings(proto, answers, limits))
