"""Run a model in ONNX Runtime with its libraries, and compare its outputs with the expected. Of a model that ONNX
Runtime refuses: what other implementations compute. Of a model that its optimisation breaks: by which optimizer. Never
imports torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto

from opmatrix.addons.check.arguments import parse_shapes, shape_words
from opmatrix.addons.check.float64_judge import explained_by_rounding
from opmatrix.addons.check.functions import inline, or_as_it_is
from opmatrix.addons.check.graph_walk import node_label
from opmatrix.addons.check.inputs import ModelInputs, drawn_inputs, find_inputs, given_inputs, tolerances
from opmatrix.addons.check.nodes import declared_operators, random_nodes
from opmatrix.addons.check.per_node import inner_values
from opmatrix.addons.check.repair import load
from opmatrix.addons.check.run_model import (
    OPTIMISED,
    PLAIN,
    Run,
    Runs,
    as_value,
    compare_settings,
    compare_value,
    compare_with_expected,
)
from opmatrix.addons.check.run_model import run as run_model
from opmatrix.addons.check.sizes import Try
from opmatrix.basics import finding
from opmatrix.basics.errors import OpmatrixError, UsageError, VerifyError
from opmatrix.basics.finding import OPTIMIZER, Finding
from opmatrix.data.arrays import dtype_name, float_limits
from opmatrix.ort_checks.evaluator import ReferenceRun
from opmatrix.ort_checks.sessions import OrtSessions, Session, call
from opmatrix.project.dtypes import FLOATS
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec, Tolerance

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
        tries: list[Try] = []
        fed_with = given or drawn_inputs(proto, specs, chosen, tries)
        runs = run_model(model, original, runtime, fed_with, tries, died=died)
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
        compared = list(_compared(proto, runs, limits, of, against, runtime))
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
    finding.write(into / PART, findings, differs=differs, agrees=marks.get("agrees") == "ok", **known)


def _vindicated(runs: Runs, others: Sequence[str]) -> Runs:
    """Return what ONNX Runtime refuses as its own fault, where two others agree."""
    if not others:
        return runs
    text = f"{runs.finding.text}. But {' and '.join(others)} agree with each other: two of three do"
    inlined = "Inline the functions: onnx.inliner.inline_local_functions(model)"
    remedy = f"The model may be right. {inlined if 'inlined' in others[-1] else 'Report it to ONNX Runtime'}"
    return replace(runs, finding=finding.wrong("runs", text, remedy), missing=True)


def _compared(
    proto: ModelProto,
    runs: Runs,
    limits: Mapping[str, Tolerance],
    of: str,
    against: Path | None,
    runtime: OrtSessions,
) -> Iterator[list[Finding]]:
    """Yield the findings for each input with which the model was run. Raises UsageError where the model `against` does
    not run with it."""
    if runs.ok and (node := next(random_nodes(proto), None)):
        yield [finding.note("agrees", f"the outputs are random ({node_label(node)}), so they are not compared")]
        return
    for run in runs.done:
        fed, answers = run.fed, run.answers
        broken = [finding.wrong(OPTIMIZER, run.broken)] if run.broken else []
        expected, whom = fed.expected, of or fed.source.removeprefix("from ")
        if against:
            whom, theirs = against.name, onnx.load_model(against, load_external_data=False).graph.output
            try:
                values = call(runtime.sessions(str(against), settings=[PLAIN])[PLAIN], fed.inputs)
            except VerifyError as error:
                raise UsageError(f"--against {against}: {error}") from error
            expected = dict(zip((output.name for output in theirs), values, strict=True))
        if expected:
            found = list(compare_with_expected(proto, answers, expected, limits, of=whom))
            outputs = {o.name: v for o, v in zip(proto.graph.output, run.outputs, strict=True) if o.name in expected}
            differs = any(f.mark == "wrong" for f in found)
            if differs and explained_by_rounding(proto, fed.inputs, outputs, expected, limits):
                found = [finding.ok("agrees", f"with {whom}, but for what the rounding of the inputs explains")]
            yield [*broken, *found]
        else:
            yield broken or list(compare_settings(proto, answers, limits))


_MOST = 200  # nodes of a model that onnx.reference evaluates as a whole
Outputs = Mapping[str, Any]


def agreeing(
    path: Path, fed: ModelInputs, runtime: OrtSessions, operators: Sequence[OpSpec], limits: Mapping[str, Tolerance]
) -> list[str]:
    """Return two sources of all outputs that agree, none of them ONNX Runtime with the model as it is; [] if there are
    none. Raises VerifyError where the model cannot be loaded."""
    model = load(path)
    names = [output.name for output in model.graph.output]
    known = fed.expected.keys() >= {*names}
    if not (known or model.functions) or len(model.graph.node) > _MOST:
        return []
    found = list(_computed(model, names, fed, runtime, operators))
    if known:
        found.append((fed.source.removeprefix("from "), fed.expected))
    for at, (first, ours) in enumerate(found):
        for second, theirs in found[at + 1 :]:
            if all(compare_value(name, ours[name], theirs[name], limits).ok for name in names):
                return [first, second]
    return []


def _computed(
    model: ModelProto, names: Sequence[str], fed: ModelInputs, runtime: OrtSessions, operators: Sequence[OpSpec]
) -> Iterator[tuple[str, Outputs]]:
    inlined = inline(model, operators).model
    for found in (model, inlined) if model.functions else (model,):
        with suppress(OpmatrixError):
            values = call(ReferenceRun(found, ()), fed.inputs)
            yield "onnx.reference", {n: as_value(v) for n, v in zip(names, values, strict=True)}
            break
    if model.functions:
        with suppress(OpmatrixError):
            yield "ONNX Runtime with the functions inlined", inner_values(inlined, names, fed.inputs, runtime)


# Of ONNX Runtime 1.31, also of the rules in its RuleBasedTransformers. It ignores a name that it does not have.
OPTIMIZERS: Mapping[str, tuple[str, ...]] = {
    "basic": (
        "EliminateIdentity", "EliminateSlice", "UnsqueezeElimination", "EliminateDropout", "ExpandElimination",
        "CastElimination", "CastChainElimination", "PreShapeNodeElimination", "NoopElimination", "DivMulFusion",
        "FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion", "ConvAddFusion", "ConvMulFusion",
        "ConvBNFusion", "Pad_Fusion", "MatMul_BatchNormalization_Fusion", "LabelEncoderFusion",
        "DoubleQDQPairsRemover", "ConstantSharing", "CommonSubexpressionElimination",
        "ConstantFolding", "MatMulAddFusion", "ReshapeFusion", "FreeDimensionOverrideTransformer", "GeluFusionL1",
        "LayerNormFusionL1", "QDQPropagationTransformer", "WeightBiasQuantization", "EnsureUniqueDQForNodeUnit",
        "WhereDummyDq", "SliceConcatToSpaceToDepthFusion", "TransposeOptimizer",
    ),
    "extended": (
        "ClipQuantRewrite", "ReluQuantRewrite", "TransposeOptimizer_CPUExecutionProvider",
        "QDQS8ToU8Transformer", "QDQSelectorActionTransformer",
        "Avx2WeightS8ToU8Transformer", "GemmActivationFusion", "MatMulIntegerToFloatFusion", "MatMulActivationFusion",
        "DynamicQuantizeMatMulFusion", "ConvActivationFusion", "GeluFusionL2", "LayerNormFusionL2",
        "SimplifiedLayerNormFusion", "AttentionFusion", "EmbedLayerNormFusion", "GatherSliceToSplitFusion",
        "GatherToSliceFusion", "MatmulTransposeFusion", "BiasGeluFusion", "GroupQueryAttentionFusion",
        "GroupQueryAttentionPreNormFusion", "SkipLayerNormFusion", "BiasSkipLayerNormFusion", "FastGeluFusion",
        "QuickGeluFusion", "BiasSoftmaxFusion", "BiasDropoutFusion", "MatMulScaleFusion", "MatMulNBitsFusion",
        "QDQFinalCleanupTransformer",
    ),
    "layout": ("NchwcTransformer", "NhwcTransformer", "ConvAddActivationFusion"),
    "all": ("FuseFp16InitializerToFp32NodeTransformer",),
}  # fmt: skip
_DRAWS = 3  # runs with inputs that are moved in their last bits
_TIMES = 16  # of the largest change among them, by which optimisation may change the outputs


def named(wrong: Finding, path: Path, runtime: OrtSessions, run: Run, limits: Mapping[str, Tolerance]) -> Finding:
    """Return the finding with the optimizer that it is of; a note where the rounding of the inputs explains it."""

    def is_right(without: Sequence[str]) -> bool:
        session = runtime.sessions(str(path), settings=[OPTIMISED], without=without)[OPTIMISED]
        outputs = zip(call(session, run.fed.inputs), run.answers[PLAIN], strict=True)
        return all(compare_value("", value, want, limits).ok for value, want in outputs)

    if not run.broken:
        plain = runtime.sessions(str(path), settings=[PLAIN])[PLAIN]
        if is_right(()) or _is_rounding(plain, run):
            return finding.note("agrees", f"{wrong.text}. Other last bits of the inputs change the outputs as much")
    names = _needed([name for of in OPTIMIZERS.values() for name in of], lambda without: _in_child(is_right, without))
    levels = [f"{name} (level {level})" for level, of in OPTIMIZERS.items() for name in of if name in names]
    by = f"by its optimizer {' and '.join(levels)}" if names else "when it optimises"
    off = f"disabled_optimizers={names}" if names else "graph_optimization_level=ORT_DISABLE_ALL"
    return replace(
        wrong,
        text=f"ONNX Runtime {onnxruntime.__version__} breaks the model {by}: {wrong.text}",
        remedy=f"The model may be right: run it with {off}, and report it to ONNX Runtime",
    )


def _needed(names: Sequence[str], is_right: Callable[[Sequence[str]], bool]) -> list[str]:
    """Return few of the names without which it is right; [] where it is wrong without all of them."""
    needed = list(names)
    if not is_right(needed):
        return []
    size = len(needed)
    while size := size // 2:
        start = 0
        while start < len(needed):
            fewer = needed[:start] + needed[start + size :]
            if fewer and is_right(fewer):
                needed = fewer
            else:
                start += size
    return needed


def _in_child(check: Callable[[Sequence[str]], bool], without: Sequence[str]) -> bool:
    """Return what a check returns in a forked process, which an optimizer may end; False where it raises or dies."""
    child = os.fork()
    if not child:
        is_right = False
        try:
            with suppress(VerifyError):
                is_right = check(without)
        finally:
            os._exit(not is_right)
    return os.waitpid(child, 0)[1] == 0


def _is_rounding(plain: Session, run: Run) -> bool:
    """Return whether optimisation changes the outputs no more than other last bits of the inputs change them."""
    random = np.random.Generator(np.random.PCG64(0))
    own = run.answers[PLAIN]
    try:
        changes = [
            _distance(call(plain, {n: _moved(v, random) for n, v in run.fed.inputs.items()}), own)
            for _ in range(_DRAWS)
        ]
        return _distance(run.answers[OPTIMISED], own) <= _TIMES * max(changes)
    except (VerifyError, ValueError, TypeError):  # of another shape, or no numbers
        return False


def _moved(value: Any, random: np.random.Generator) -> Any:
    if not isinstance(value, np.ndarray) or dtype_name(value) not in FLOATS:
        return value
    signs = random.choice((-1.0, 1.0), value.shape)
    return (value * (1 + signs * float(float_limits(value.dtype).eps))).astype(value.dtype)


def _distance(ours: Iterable[Any], theirs: Iterable[Any]) -> float:
    """Return the distance of all outputs. Raises ValueError or TypeError where they cannot be subtracted."""
    total = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if np.shape(a) != np.shape(b):
            raise ValueError("they have other shapes")
        difference = np.asarray(a).astype(np.float64) - np.asarray(b).astype(np.float64)
        total += float(np.sum(np.square(difference)))
    return float(np.sqrt(total))
