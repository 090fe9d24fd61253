"""Every operator, called as its declaration forbids: it reports operator, argument and value, and the process survives.

`opmatrix.search.invalid_calls` derives wrong calls from the declaration: dtype, rank and size of each input, value of
each attribute. This module adds calls with one input too many or too few. The table below has calls that only a kernel
refuses; group_norm and nms have further tests in this folder. A child process calls each operator, and must not die.

Sizes that a declaration computes: both bindings and the fake kernel agree with Python, and none is negative.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmatrix.basics.errors import RegisterError
from opmatrix.codegen import write_code
from opmatrix.declaration.load import Operator, load_operator, operator_names
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.search.invalid_calls import Call, InvalidCall, invalid_calls, valid_call
from opmatrix.signature.signature import has_kernel, torch_name
from opmatrix.spec import Attribute
from tests.support.building import build, copy_project
from tests.support.forked import forked
from tests.support.projects import ROOT

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

NAMES = operator_names(Paths(ROOT))
OPERATORS = {name: load_operator(Paths(ROOT), name) for name in NAMES}
IN_TORCH = [name for name, operator in OPERATORS.items() if operator.spec.torch]
WITH_NODE = [name for name, operator in OPERATORS.items() if not operator.spec.uses]
CELLS = [Cell(torch="2.13", exporter=exporter, opset=20, ort="1.31") for exporter in ("legacy", "dynamo")]

# torch's own operators have torch's messages, and accept what torch accepts: by operator and kind of fault.
TORCHS_OWN = {
    "gelu": {
        "dtype of x: float16": None,  # its kernel computes the result; exports refuse the call
        "dtype of x: int32": "\"GeluKernelImpl\" not implemented for 'Int'",
        "value of approximate: no_such_none": "approximate argument must be either none or tanh",
    },
    "inverse": {
        "dtype of x: float16": "Low precision dtypes not supported. Got",
        "dtype of x: int32": "Expected a floating point or complex tensor as input. Got",
    },
}
# Invalid calls beyond the declaration: input, value, and the messages of torch and ONNX Runtime (None: see below).
NOT_SQUARE = "must be batches of square matrices, but they are 3 by 4 matrices"
BEYOND: dict[str, list[tuple[str, Any, str, str | None]]] = {
    "inverse": [
        ("x", np.ones((3, 4), np.float32), NOT_SQUARE, None),
        ("x", np.ones((2, 3, 4), np.float32), NOT_SQUARE, None),
        ("x", np.ones(3, np.float32), "must have at least 2 dimensions", "Inverse node"),
        ("x", np.zeros((3, 3), np.float32), "The diagonal element 1 is zero", None),  # ONNX Runtime returns infinities
    ],
    "group_norm": [
        ("num_groups", np.array([n], np.float32), says, says)
        for n, says in {
            5: "group_norm: num_groups must divide the 2 channels of x, got 5",
            0: "group_norm: num_groups must be a whole number greater than 0, got 0",
            -2: "group_norm: num_groups must be a whole number greater than 0, got -2",
        }.items()
    ],
    "nms": [
        (
            "boxes",
            np.ones((12, 5), np.float32),
            "nms: boxes must have shape (A, N + 4 - A) and 4 along axis with N = 12 as in scores, got (12, 5)",
            "nms: boxes must have shape (A, N + 4 - A) and 4 along axis with N = 12 as in scores, got (12, 5)",
        )
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """A project of all operators; a test compiles an operator when it first needs it (`made`)."""
    from opmatrix.export import exporters

    exporters.warm_up()  # once, before any child is forked
    return copy_project(tmp_path_factory.mktemp("bad"), *NAMES)


@pytest.fixture
def made(paths: Paths) -> Callable[[str], Operator]:
    def of(name: str) -> Operator:
        operator = OPERATORS[name]
        if not has_kernel(operator.spec):
            for used in (name, *operator.spec.uses):
                write_code.run(paths, OPERATORS[used])
        elif not paths.ort_library(name).exists():
            build(paths, name)
        return operator

    return of


def said(calls: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """Return the message of each call, or "" for a call that succeeds."""
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = ""
        except Exception as error:  # of any type: users see its text
            found[name] = str(error)
    return found


def in_child(run: Callable[[], dict[str, str]], tmp_path: Path) -> dict[str, str]:
    """Return the result of `run` in a child process; fail if a signal ends the child."""
    answers = tmp_path / "answers.json"
    assert forked(lambda: void(answers.write_text(json.dumps(run()))), tmp_path / "output") == ""
    found: dict[str, str] = json.loads(answers.read_text())
    return found


def void(_: object) -> None: ...


def beyond(operator: Operator) -> Iterator[tuple[Call, str, str | None]]:
    """Yield the calls of `BEYOND`, with the messages of torch and ONNX Runtime."""
    call = valid_call(operator)
    for name, value, torch_says, ort_says in BEYOND.get(operator.name, []):
        index = [i.name for i in operator.spec.inputs].index(name)
        yield replace(call, inputs=(*call.inputs[:index], value, *call.inputs[index + 1 :])), torch_says, ort_says


def names_all(operator: Operator, one: InvalidCall, text: str, *, argument: str) -> bool:
    """Return whether a message is one sentence of opmatrix about operator, argument and value."""
    _, _, rest = text.partition(f"{operator.name}: {argument}")
    return bool(rest) and one.shown in rest


def argument(one: InvalidCall) -> str:
    return torch_name(one.part) if isinstance(one.part, Attribute) else one.part.name


@pytest.mark.parametrize("name", IN_TORCH)
def test_in_torch(name: str, made: Callable[[str], Operator], paths: Paths, tmp_path: Path) -> None:
    operator = made(name)
    wrong = list(invalid_calls(operator))

    def run() -> dict[str, str]:
        from opmatrix.torch_checks.invalid_calls import call
        from opmatrix.torch_ops import load as load_library

        loaded = load_library.load(paths, operator)
        right = valid_call(operator)
        calls = {str(one): one.call for one in wrong}
        calls |= {f"beyond {n}": given for n, (given, *_) in enumerate(beyond(operator))}
        calls["too few"] = replace(right, inputs=right.inputs[:-1])
        calls["too many"] = replace(right, inputs=(*right.inputs, *[right.inputs[0]] * 9))
        found = said({text: partial(call, operator, loaded.overload, given) for text, given in calls.items()})
        call(operator, loaded.overload, right)
        return found

    found = in_child(run, tmp_path)
    spec = operator.spec
    assert spec.torch is not None
    own = TORCHS_OWN.get(name, {})
    for one in wrong:
        text = found[str(one)]
        if spec.torch.overrides:
            assert (own[str(one)] or "") in text and bool(text) == bool(own[str(one)]), (one, text)
        else:
            assert names_all(operator, one, text, argument=argument(one)), (one, text)
            assert "\n" not in text, text
    for n, (_, says, _) in enumerate(beyond(operator)):
        assert says in found[f"beyond {n}"]
    for count in ("too few", "too many"):  # torch's own message, which has the declaration
        assert f"{spec.torch.name.partition('::')[2]}(" in found[count] and "argument" in found[count], found[count]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.exporter)
@pytest.mark.parametrize("name", IN_TORCH)
def test_in_an_export(name: str, cell: Cell, made: Callable[[str], Operator], paths: Paths, tmp_path: Path) -> None:
    operator = made(name)
    wrong = list(invalid_calls(operator))

    def run() -> dict[str, str]:
        import torch

        from opmatrix.export.exporters import export
        from opmatrix.export.generated_modules import load_generated
        from opmatrix.export.signature import ExpectedModel
        from opmatrix.export.write_models import define

        generated = load_generated(paths, name)
        alive = define(paths, operator.spec, generated)

        def exported(given: Call, around: Callable[..., Any] | None = None) -> None:
            model = replace(given.model, dynamic={}, around=around)
            expected_model = ExpectedModel(
                spec=operator.spec, model=model, lowering="custom", cell=cell, schema=generated.schema.schema()
            )
            flat = [a for i in given.inputs for a in (i if isinstance(i, tuple) else () if i is None else (i,))]
            export(expected_model, generated, tuple(torch.from_numpy(array) for array in flat))

        right = valid_call(operator)
        calls = {str(one): partial(exported, one.call) for one in wrong}
        calls |= {f"beyond {n}": partial(exported, given) for n, given, _ in traced(operator)}
        calls |= {
            "too few": partial(exported, right, lambda op, *given: op(*given[:-1])),
            "too many": partial(exported, right, lambda op, *given: op(*given, *[given[0]] * 9)),
        }
        found = said(calls)
        exported(right)
        del alive
        return found

    found = in_child(run, tmp_path)
    assert operator.spec.torch is not None
    for one in wrong:
        text = found[str(one)]
        assert f"{name}-custom-{one.call.model.name}@{cell.export_name}: " in text
        own = TORCHS_OWN.get(name, {}).get(str(one))  # where an exporter runs the operator before the lowering
        assert (own and own in text) or names_all(operator, one, text, argument=argument(one)), text
    for n, _, says in traced(operator):
        assert says in found[f"beyond {n}"]
    for count in ("too few", "too many"):
        assert name in found[count] and "argument" in found[count], found[count]


def traced(operator: Operator) -> Iterator[tuple[int, Call, str]]:
    """Yield the calls of `BEYOND` that exporters can see: they trace torch's own operators, and only shapes."""
    shapes = [getattr(i, "shape", None) for i in valid_call(operator).inputs]
    for n, (call, says, _) in enumerate(beyond(operator)):
        if operator.spec.torch and operator.spec.torch.overrides and [i.shape for i in call.inputs] != shapes:
            yield n, call, says


@pytest.mark.parametrize("name", WITH_NODE)
def test_in_onnx_runtime(name: str, made: Callable[[str], Operator], paths: Paths, tmp_path: Path) -> None:
    operator = made(name)
    spec = operator.spec
    wrong = [one for one in invalid_calls(operator) if not (isinstance(one.part, Attribute) and one.part.torch_only)]

    def run() -> dict[str, str]:
        from onnx import helper

        from opmatrix.ort_checks.fuzz import Fuzz, node_model
        from opmatrix.ort_checks.sessions import OrtSessions

        runtime = OrtSessions(paths.ort_library(name) if has_kernel(spec) else None)
        fuzz, right = Fuzz(operator, runtime), valid_call(operator)

        def load(change: Callable[[Any], None]) -> None:
            model = node_model(spec, right)
            change(model.graph.node[0])
            runtime.sessions(model.SerializeToString())

        def other_kind(attribute: str, node: Any) -> None:
            (found,) = [a for a in node.attribute if a.name == attribute]
            other = helper.make_attribute(attribute, "text" if found.type != found.STRING else 3)
            found.CopyFrom(other)

        calls: dict[str, Callable[[], Any]] = {str(one): partial(fuzz.run, one.call) for one in wrong}
        calls |= {f"beyond {n}": partial(fuzz.run, c) for n, (c, _, says) in enumerate(beyond(operator)) if says}
        calls["too few"] = partial(load, drop)
        calls["too many"] = partial(load, lambda node: node.input.extend([node.input[0]] * 9))
        for a in spec.attributes:
            if not a.torch_only:
                calls[f"kind of {a.name}"] = partial(load, partial(other_kind, a.name))
        found = said(calls)
        fuzz.run(right)
        return found

    found = in_child(run, tmp_path)
    for one in wrong:
        text = found[str(one)]
        if one.kind == "dtype":  # ONNX Runtime refuses it while it loads the model, and knows only the node's name
            together = one.shown in spec.types.get(one.part.type, ())
            what = "inputs of these dtypes together" if together else f"a tensor({one.shown}) as {one.part.name}"
            own = not has_kernel(spec) and not text  # ONNX Runtime's own kernels accept more than the declaration
            assert own or f"no kernel of {spec.onnx.op_type} takes {what}" in text, (one, text)
        else:
            assert names_all(operator, one, text, argument=one.part.name), (one, text)
    for n, (_, _, says) in enumerate(beyond(operator)):
        assert says is None or says in found[f"beyond {n}"], found[f"beyond {n}"]
    for a in spec.attributes:
        if not a.torch_only:
            assert f"{name}: attribute {a.name} must be of type " in found[f"kind of {a.name}"], found
    counts = ["too few"] if any(i.variadic for i in spec.inputs) else ["too few", "too many"]
    for count in counts:
        assert f"the model has a node {spec.onnx.domain}::{spec.onnx.op_type} with " in found[count]
        assert " inputs, allowed: " in found[count]


def drop(node: Any) -> None:
    """Remove all inputs but the first, or the only one."""
    del node.input[1 if len(node.input) > 1 else 0 :]


def test_a_call_that_is_refused_as_it_stands_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid call differs from it in one argument, and would fail for the same reason."""
    from opmatrix.torch_checks import invalid_calls as torch_calls

    def refusing(*arguments: object, **keywords: object) -> None:
        raise RuntimeError("planted")

    operator = OPERATORS["group_norm"]
    why = "refuses a call of one of its cases, so that each invalid call fails for that reason and shows nothing: "
    monkeypatch.setattr(torch_calls, "call", refusing)
    with pytest.raises(RegisterError, match=f"^group_norm in torch {why}planted$"):
        torch_calls.results(operator, refusing)


SPEC = '''
from opmatrix.spec import Dims, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp

SPEC = OpSpec(
    name="windows",
    summary="Windows of three, two apart.",
    torch=TorchOp(name="test::windows"),
    onnx=OnnxOp(domain="test.windows", op_type="Windows"),
    inputs=(Input(name="x", type="float32", dims=("N", "M")),),
    outputs=(Output(name="y", type="float32", shape=Dims(dims=("(N - 3) // 2 + 1", "2*M"))),),
    tolerances={"custom": {"float32": Tolerance(rtol=0.0, atol=0.0)}},
    kernel="""
#pragma once
#include "opmatrix/tensor_view.h"
namespace opmatrix::windows {
inline void windows(TensorView<const float>, TensorView<float> y) {
  for (std::int64_t i = 0; i < y.numel(); ++i) y.data[i] = 1;
}
}  // namespace opmatrix::windows
""",
)
'''
CASES = """
from opmatrix.spec import Case, Model, Random

MODELS = (Model(name="plain", cases=(Case(name="plain", inputs={"x": Random(shape=(5, 2))}),)),)
"""
SHAPES = {(5, 2): (2, 4), (4, 1): (1, 2), (3, 0): (1, 0), (2, 3): (0, 6), (1, 3): (0, 6)}
TOO_SMALL = "windows: y would have the shape (-1, 4); its inputs are too small"


def test_negative_sizes_are_refused(tmp_path: Path) -> None:
    paths = copy_project(tmp_path)
    paths.op("windows").mkdir()
    paths.spec("windows").write_text(SPEC)
    paths.cases("windows").write_text(CASES)
    operator = build(paths, "windows")
    call = valid_call(operator)

    def of(*shape: int) -> Any:
        return replace(call, inputs=(np.zeros(shape, np.float32),))

    def in_torch() -> None:
        import torch

        from opmatrix.export.generated_modules import load_generated
        from opmatrix.torch_checks.invalid_calls import call as called
        from opmatrix.torch_ops import load

        loaded = load.load(paths, operator)
        fake = load_generated(paths, "windows").fake.fake
        for shape, wanted in SHAPES.items():
            assert tuple(called(operator, loaded.overload, of(*shape)).shape) == wanted
            assert tuple(fake(torch.zeros(shape)).shape) == wanted
        with pytest.raises(RuntimeError) as caught:
            called(operator, loaded.overload, of(0, 2))
        assert str(caught.value) == TOO_SMALL

    def in_onnx_runtime() -> None:
        from opmatrix.ort_checks.fuzz import Fuzz
        from opmatrix.ort_checks.sessions import OrtSessions, RefusedError

        fuzz = Fuzz(operator, OrtSessions(paths.ort_library("windows")))
        for shape, wanted in SHAPES.items():
            assert fuzz.run(of(*shape))[0].shape == wanted
        with pytest.raises(RefusedError, match="windows: y would have the shape"):
            fuzz.run(of(0, 2))

    assert forked(in_torch, tmp_path / "output") == ""
    assert forked(in_onnx_runtime, tmp_path / "output") == ""
