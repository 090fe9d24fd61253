"""Write a case as a folder that anyone replays with ONNX Runtime and NumPy alone: model, data, library, program."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto

from opmatrix.declaration.load import Operator
from opmatrix.errors import UsageError, VerifyError, did_you_mean, missing
from opmatrix.files import write_bytes, write_text
from opmatrix.matrix.cells import Cell
from opmatrix.ort_checks import cast_edges, replay_case
from opmatrix.project.paths import Paths
from opmatrix.spec import Lowering
from opmatrix.testdata import onnx_dataset
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.compare import EXACT

FUNCTION = "_function"  # the end of the name of a case that ran through the function body

README = """{title}

{what}

Run it with ONNX Runtime {ort} and NumPy, without opmatrix:

    pip install "onnxruntime=={ort}.*" numpy
    python replay.py

model.onnx      the model that was verified{casts}
{library}inputs.npz      its inputs, as input_0, input_1, ... in the order of case.json
expected.npz    the outputs of the reference, as output_0, output_1, ...
case.json       names of inputs and outputs, and the tolerances
replay.py       runs the model and compares; exits with 1 where an output differs
"""


def run(
    layout: Paths, operator: Operator, *, lowering: Lowering, cell: Cell, case: str, into: Path | None = None
) -> None:
    """Write the folder and print its path. Raises UsageError for an unknown case, VerifyError without its files."""
    known = {c.name: (m, index) for m in operator.models for index, c in enumerate(m.cases)}
    name = case if case in known or lowering == "custom" else case.removesuffix(FUNCTION)
    if name not in known:
        near = did_you_mean(case, known)
        raise UsageError(f"{operator.name} has no case {case!r}; it has {', '.join(known)}{near}")
    model, index = known[name]
    path = layout.model(operator.name, lowering, cell, model.name)
    if name != case:  # the custom node, of which ONNX Runtime runs the function body
        path = layout.function_model(operator.name, cell, model.name)
    if not path.is_file():
        raise VerifyError(missing(path, run=f"python -m opmatrix export {operator.name}"))
    data = onnx_dataset.read(layout.data(operator.name, model.name, index))
    library = None
    if lowering == "custom" and operator.spec.runtime == "kernel":
        library = layout.ort_library(operator.name)
        if not library.is_file():
            raise VerifyError(missing(library, run=f"python -m opmatrix compile {operator.name}"))
    title = f"{operator.name}-{lowering}-{case}@{cell}"
    folder = into or layout.saved_case(title)
    content, casts = _with_float_edges(ModelProto.FromString(path.read_bytes()))
    tolerances = {str(dtype): tolerance for dtype, tolerance in operator.spec.tolerances[lowering].items()}
    outputs = [
        {"name": name, "rtol": tolerance.rtol, "atol": tolerance.atol}
        for name, array in data.outputs.items()
        for tolerance in [tolerances.get(dtype_name(array), EXACT)]
    ]
    made = ModelProto.FromString(content)
    described = {
        "library": library.name if library else None,
        "inputs": [value.name for value in made.graph.input],
        "outputs": outputs,
    }
    if folder.exists() and any(folder.iterdir()) and not (folder / "case.json").is_file():
        raise UsageError(f"--into {folder}: the folder has other files; name one that is empty or does not exist")
    write_bytes(folder / "model.onnx", content)
    if library:
        shutil.copyfile(library, folder / library.name)
    _save(folder / "inputs.npz", "input", data.inputs)
    _save(folder / "expected.npz", "output", data.outputs)
    write_text(folder / "case.json", json.dumps(described, indent=1) + "\n")
    write_bytes(folder / "replay.py", Path(replay_case.__file__).read_bytes())
    own = "its custom-op library, for this operating system and CPU"
    library_line = f"{library.name}\n                {own}\n" if library else ""
    readme = README.format(
        title=title,
        what=operator.spec.summary,
        ort=cell.ort,
        casts=", with casts: NumPy lacks dtypes of its inputs or outputs" if casts else "",
        library=library_line,
    )
    write_text(folder / "README.txt", readme)
    shown = folder.relative_to(layout.root) if folder.is_relative_to(layout.root) else folder
    print(f"Replay with: python {shown / 'replay.py'}")


def _with_float_edges(model: ModelProto) -> tuple[bytes, bool]:
    """Return a model whose inputs and outputs NumPy has, and whether that needed casts to and from float32."""
    named = {
        kind: [SimpleNamespace(name=value.name, type=_type(value.type.tensor_type.elem_type)) for value in values]
        for kind, values in (("inputs", model.graph.input), ("outputs", model.graph.output))
    }
    session = SimpleNamespace(get_inputs=lambda: named["inputs"], get_outputs=lambda: named["outputs"])
    content: bytes = model.SerializeToString()
    if not cast_edges.needs_casts(session):
        return content, False
    return cast_edges.with_float_edges(content, session), True


def _type(element: int) -> str:
    """Return ONNX Runtime's name of an element type: ``tensor(bfloat16)``."""
    return f"tensor({TensorProto.DataType.Name(element).lower()})"


def _save(path: Path, kind: str, arrays: Mapping[str, Array]) -> None:
    named: dict[str, Any] = {f"{kind}_{n}": _plain(array) for n, array in enumerate(arrays.values())}
    np.savez(path, **named)


def _plain(array: Array) -> Array:
    """Return an array in a dtype that NumPy has by itself, with the same values."""
    if array.dtype == np.object_:
        return array.astype(str)
    return array.astype(np.float32) if array.dtype.kind == "V" or dtype_name(array).startswith("float8") else array
