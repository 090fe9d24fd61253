"""onnx's own backend test runner, with ONNX Runtime and an operator's library, on folders that verify wrote."""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort
from onnx import ModelProto
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import Runner

from opmatrix.declaration.load import Operator
from opmatrix.ort_checks import cast_edges
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import dtype_of, has_ort_library
from opmatrix.spec import Lowering, Model

with warnings.catch_warnings():  # onnxruntime 1.31 imports onnx.version, which onnx 1.23 calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from onnxruntime.backend.backend import OnnxRuntimeBackend


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder with a model and its test data sets, the tolerance of the model, and the library that it needs."""

    name: str
    path: Path
    library: Path | None
    rtol: float
    atol: float


def folders(paths: Paths, operator: Operator, lowering: Lowering, cell: Cell) -> list[Folder]:
    """Return the folders of one cell, except those of models that are declared unsupported."""
    ours = lowering == "custom" and has_ort_library(operator.spec)
    return [
        Folder(
            name=f"test_{operator.name}_{lowering}_{cell}_{model.name}",
            path=paths.model(operator.name, lowering, cell, model.name).parent,
            library=paths.ort_library(operator.name) if ours else None,
            rtol=max(t.rtol for t in tolerances),
            atol=max(t.atol for t in tolerances),
        )
        for model in operator.at(lowering, cell.opset).models
        if not model.unsupported and (tolerances := _tolerances(operator, lowering, model))
    ]


def _tolerances(operator: Operator, lowering: Lowering, model: Model) -> list[Any]:
    by_dtype = operator.spec.tolerances[lowering]
    return [by_dtype[dtype_of(output.type, model.types)] for output in operator.spec.outputs]


def run(chosen: Sequence[Folder]) -> unittest.TestResult:
    """Run the folders as backend tests."""
    result = unittest.TestResult()
    for library in {folder.library for folder in chosen}:
        suite = _Runner(_backend(library), [folder for folder in chosen if folder.library == library]).test_suite
        suite.run(result)
    return result


class _Runner(Runner):
    """The runner with our folders instead of onnx's own tests, on the CPU alone."""

    def __init__(self, backend: type[OnnxRuntimeBackend], chosen: Sequence[Folder]) -> None:
        self.backend = backend
        self._parent_module = None
        self._include_patterns, self._exclude_patterns, self._xfail_patterns = set(), set(), set()
        self._test_kwargs = {}
        self._test_items = {"NodeModel": {}}
        for folder in chosen:
            case = TestCase(
                name=folder.name, model_name=folder.name, url=None, model_dir=str(folder.path), model=None,
                data_sets=None, kind="node", rtol=folder.rtol, atol=folder.atol,
            )  # fmt: skip
            self._add_model_test(case, "Node")

    def _add_test(
        self, category: str, test_name: str, test_func: Callable[..., Any], *others: Any, **given: Any
    ) -> None:
        super()._add_test(category, test_name, test_func, *others, devices=("CPU",), **given)


@dataclass(frozen=True)
class _CastModel:
    """A model with bfloat16 or float8 inputs or outputs, which the prepared model of the backend does not run."""

    names: Sequence[str]
    session: cast_edges.CastSession

    def run(self, inputs: Sequence[Any], **_: Any) -> Sequence[Any]:
        return self.session.run(None, dict(zip(self.names, inputs, strict=True)))


def _backend(library: Path | None) -> type[OnnxRuntimeBackend]:
    """Return ONNX Runtime's backend with a custom-op library, for which the backend has no option.

    With ALLOW_RELEASED_ONNX_OPSET_ONLY=1, it skips every model that imports a domain other than ONNX's own: the tests
    would pass without a run.
    """

    class WithLibrary(OnnxRuntimeBackend):
        allowReleasedOpsetsOnly = False  # noqa: N815

        @classmethod
        def prepare(cls, model: Any, device: str | None = None, **given: Any) -> Any:
            if not isinstance(model, ModelProto):
                return super().prepare(model, device, **given)
            options = ort.SessionOptions()
            if library:
                options.register_custom_ops_library(str(library))
            content, providers = model.SerializeToString(), ["CPUExecutionProvider"]
            session = ort.InferenceSession(content, options, providers=providers)
            if not cast_edges.needs_casts(session):
                return super().prepare(session, device, **given)
            cast = ort.InferenceSession(cast_edges.with_float_edges(content, session), options, providers=providers)
            names = [value.name for value in session.get_inputs()]
            return _CastModel(names, cast_edges.CastSession(session, cast=cast))

    return WithLibrary
