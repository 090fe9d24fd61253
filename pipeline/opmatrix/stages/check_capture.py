"""Build a person's torch model, run it, and export it: what `doit check` needs torch for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

from opmatrix.declaration import load
from opmatrix.errors import OpmatrixError, UsageError, many
from opmatrix.export.exporter_errors import explain
from opmatrix.export.exporter_warnings import collected, unexpected
from opmatrix.files import write_bytes
from opmatrix.matrix.cells import Exporter
from opmatrix.model_check import finding, load_operators
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.type_text import format_array
from opmatrix.model_check.user_model import TorchModel, build, error_text, to_array
from opmatrix.project.paths import Paths
from opmatrix.testdata import onnx_dataset
from opmatrix.torch_library.call import torch_minor

PART = "capture.json"


def run(layout: Paths, *, target: str, exporters: Sequence[Exporter], opset: int, into: Path) -> None:
    """Write a folder per exporter, model.onnx with what torch computes as test_data_set_0, and findings.

    What is being done is written down first, so that it can be told of a process that dies of it. A person's mistake
    is no error of this stage but what it has found: `error` in capture.json.
    """
    record = _Record(into / PART)
    try:
        record.doing(f"the operators of this project were loaded into torch {torch_minor()}")
        loaded = load_operators.load(layout, load.load_operators(layout))
        record.doing(f"{target} ran")
        model = build(target, layout.root)
        model.module.eval()
        inputs = ", ".join(
            f"{n} {format_array(to_array(t))}" for n, t in zip(model.input_names, model.inputs, strict=True)
        )
        record.add(finding.ok("function", f"gives the module {type(model.module).__name__}, inputs: {inputs}"))
        record.doing(f"the model ran in torch {torch_minor()}")
        outputs = _run(model, target, loaded)
    except OpmatrixError as error:
        record.fail(str(error))
        return
    names = _names(model, len(outputs), target)
    shown = ", ".join(f"{n} {format_array(to_array(t))}" for n, t in zip(names, outputs, strict=True))
    record.add(finding.ok("torch", f"runs in torch {torch.__version__}; outputs: {shown}"))
    for exporter in exporters:
        name = f"torch{torch_minor()}-{exporter}-opset{opset}"
        record.doing(f"the {exporter} exporter ran", name)
        path = _export(model, loaded, exporter=exporter, opset=opset, names=names, folder=into / name, record=record)
        if path:
            data = onnx_dataset.DataSet(
                inputs={n: to_array(t) for n, t in zip(model.input_names, model.inputs, strict=True)},
                outputs={n: to_array(t) for n, t in zip(names, outputs, strict=True)},
            )
            onnx_dataset.write(path.parent / f"{onnx_dataset.DATA_SET}0", data)
            record.made(name, path)
    record.doing("")


class _Record:
    """What is known so far, in the file that the caller reads."""

    def __init__(self, path: Path) -> None:
        self._path, self._findings, self._cells = path, list[Finding](), dict[str, Any]()
        self._doing = self._cell = ""

    def doing(self, what: str, cell: str = "") -> None:
        self._doing, self._cell = what, cell
        if cell:
            self._cells[cell] = {"findings": [], "model": None}
        self._write()

    def add(self, found: Finding) -> None:
        if self._cell:
            self._cells[self._cell]["findings"].append(vars(found))
        else:
            self._findings.append(found)
        self._write()

    def made(self, cell: str, model: Path) -> None:
        self._cells[cell]["model"] = str(model)
        self._write()

    def fail(self, error: str) -> None:
        self._doing = ""
        self._write(error)

    def _write(self, error: str = "") -> None:
        more = {"cells": self._cells, "doing": self._doing, "cell": self._cell, "error": error}
        finding.write(self._path, self._findings, **more)


def _run(model: TorchModel, target: str, loaded: load_operators.LoadedOperators) -> tuple[torch.Tensor, ...]:
    """Return the outputs of the module. Raises UsageError where it raises, or gives what is no tensor."""
    try:
        with torch.no_grad():
            given = model.module(*(t.clone() for t in model.inputs))
    except Exception as error:  # whatever a person's module raises
        text = f"{target}: the module raised {error_text(error)}"
        missing = next((why for name, why in loaded.missing.items() if name.partition("::")[2] in str(error)), "")
        raise UsageError(f"{text}. {missing}" if missing else text) from error
    leaves = _pytree.tree_leaves(given)
    if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        kinds = ", ".join(sorted({type(leaf).__name__ for leaf in leaves})) or "nothing"
        raise UsageError(f"{target}: the module returned {kinds}; it must return tensors")
    return tuple(leaves)


def _names(model: TorchModel, count: int, target: str) -> tuple[str, ...]:
    names = model.output_names or (("output",) if count == 1 else tuple(f"output_{n}" for n in range(count)))
    return names if len(names) == count else tuple(f"output_{n}" for n in range(count))


def _export(
    model: TorchModel,
    loaded: load_operators.LoadedOperators,
    *,
    exporter: Exporter,
    opset: int,
    names: Sequence[str],
    folder: Path,
    record: _Record,
) -> Path | None:
    """Write model.onnx; return its path, or None where the exporter raised."""
    with collected() as said:
        try:
            with torch.no_grad():
                proto = load_operators.export(model, loaded, exporter=exporter, opset=opset, outputs=names)
        except Exception as error:  # an exporter raises whatever its tracer, its passes and the model raise
            own = error if isinstance(error, OpmatrixError) else None
            text = str(own) if own else explain(error)
            record.add(finding.wrong("export", f"the {exporter} exporter: {text[:500]}"))
            return None
    path = folder / "model.onnx"
    write_bytes(path, proto.SerializeToString(deterministic=True))
    record.add(finding.ok("export", f"{exporter}, opset {opset}: {many(len(proto.graph.node), 'node')}"))
    for text in unexpected(said):
        record.add(finding.note("export", f"the exporter warned: {text.partition('. ')[0]}"))
    got = {o.domain: o.version for o in proto.opset_import}.get("")
    if got != opset:
        text = f"asked for opset {opset}, the exporter wrote {got}"
        remedy = "Choose an opset that the model's operators have: --opset"
        record.add(finding.wrong("export", text, remedy))
    return path
