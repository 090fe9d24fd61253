"""Build, run and export a user's torch model: the part of `doit check` that needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

from opmatrix.addons.check import user_model
from opmatrix.addons.check.graph_walk import format_array
from opmatrix.addons.check.user_model import TorchModel, build, error_text, to_array
from opmatrix.basics import finding
from opmatrix.basics.errors import OpmatrixError, UsageError, many
from opmatrix.basics.files import write_bytes
from opmatrix.basics.finding import Finding
from opmatrix.data import dataset
from opmatrix.declaration.isolated import read_operators
from opmatrix.export.exporter_warnings import collected, unexpected
from opmatrix.export.exporters import explain
from opmatrix.project.cells import Exporter
from opmatrix.project.paths import DATA_SET, Paths
from opmatrix.torch_ops.call import torch_minor

PART = "capture.json"


def run(paths: Paths, *, target: str, exporters: Sequence[Exporter], opset: int, into: Path) -> None:
    """Write a folder per exporter, with model.onnx and the outputs of torch as test_data_set_0, and the findings.

    capture.json first records each activity, `doing`, in case the process crashes in it. A user's mistake is no error
    of this stage but a result: `error` in capture.json.
    """
    record = _Record(into / PART)
    try:
        record.doing(f"the operators of this project were loaded into torch {torch_minor()}")
        loaded = user_model.load(paths, read_operators(paths).operators)
        record.doing(f"{target} ran")
        model = build(target, paths.root)
        model.module.eval()
        inputs = _described(model.input_names, model.inputs)
        record.add(finding.ok("function", f"gives the module {type(model.module).__name__}, inputs: {inputs}"))
        record.doing(f"the model ran in torch {torch_minor()}")
        outputs = _run(model, target, loaded)
    except OpmatrixError as error:
        record.fail(str(error))
        return
    names = _names(model, len(outputs))
    record.add(finding.ok("torch", f"runs in torch {torch.__version__}; outputs: {_described(names, outputs)}"))
    for exporter in exporters:
        name = f"torch{torch_minor()}-{exporter}-opset{opset}"
        record.doing(f"the {exporter} exporter ran", name)
        path = _export(model, loaded, exporter=exporter, opset=opset, names=names, folder=into / name, record=record)
        if path:
            data = dataset.DataSet(
                inputs=dict(zip(model.input_names, map(to_array, model.inputs), strict=True)),
                outputs=dict(zip(names, map(to_array, outputs), strict=True)),
            )
            dataset.write(path.parent / f"{DATA_SET}0", data)
            record.made(name, path)
    record.doing("")


def _described(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> str:
    return ", ".join(f"{name} {format_array(to_array(tensor))}" for name, tensor in zip(names, tensors, strict=True))


class _Record:
    """The findings so far, in the file that `doit check` reads."""

    def __init__(self, path: Path) -> None:
        self._path, self._findings, self._cells = path, list[Finding](), dict[str, Any]()
        self._state = {"doing": "", "cell": "", "error": ""}

    def doing(self, what: str, cell: str = "") -> None:
        if cell:
            self._cells[cell] = {"findings": [], "model": None}
        self._write(doing=what, cell=cell)

    def add(self, found: Finding) -> None:
        if cell := self._state["cell"]:
            self._cells[cell]["findings"].append(vars(found))
        else:
            self._findings.append(found)
        self._write()

    def made(self, cell: str, model: Path) -> None:
        self._cells[cell]["model"] = str(model)
        self._write()

    def fail(self, error: str) -> None:
        self._write(doing="", error=error)

    def _write(self, **state: str) -> None:
        self._state |= state
        finding.write(self._path, self._findings, cells=self._cells, **self._state)


def _run(model: TorchModel, target: str, loaded: user_model.LoadedOperators) -> tuple[torch.Tensor, ...]:
    """Return the outputs of the module. Raises UsageError where it raises, or returns other things than tensors."""
    try:
        with torch.no_grad():
            given = model.module(*(t.clone() for t in model.inputs))
    except Exception as error:  # a user's module may raise anything
        text = f"{target}: the module raised {error_text(error)}"
        missing = next((why for name, why in loaded.missing.items() if name.partition("::")[2] in str(error)), "")
        raise UsageError(f"{text}. {missing}" if missing else text) from error
    leaves = _pytree.tree_leaves(given)
    if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        kinds = ", ".join(sorted({type(leaf).__name__ for leaf in leaves})) or "nothing"
        raise UsageError(f"{target}: the module returned {kinds}; it must return tensors")
    return tuple(leaves)


def _names(model: TorchModel, count: int) -> tuple[str, ...]:
    names = model.output_names or ("output",)
    return names if len(names) == count else tuple(f"output_{n}" for n in range(count))


def _export(
    model: TorchModel,
    loaded: user_model.LoadedOperators,
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
                proto = user_model.export(model, loaded, exporter=exporter, opset=opset, outputs=names)
        except Exception as error:  # the tracer, the passes and the model may raise anything
            text = str(error) if isinstance(error, OpmatrixError) else explain(error)
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
