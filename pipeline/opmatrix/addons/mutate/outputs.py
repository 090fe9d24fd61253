"""The outputs of a kernel in torch on all cases and drawn inputs, and how far those of a mutant are from them.

Runs in the child of a server: with two arguments it writes the outputs of the kernel as it is, with three it compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from opmatrix.basics import step_log
from opmatrix.basics.files import write_text
from opmatrix.data import dataset
from opmatrix.data.arrays import Array, numpy_dtype
from opmatrix.data.compare import EXACT, compare
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.declaration.models import graph_outputs
from opmatrix.project.paths import Paths
from opmatrix.search import draw_inputs, drawn
from opmatrix.signature.signature import dtype_of
from opmatrix.spec import Model
from opmatrix.torch_ops.call import CALL_ERRORS, as_tuple, with_attributes
from opmatrix.torch_ops.case_tensors import arguments, as_array, tensors
from opmatrix.torch_ops.load import LoadedLibrary, load

DIFFERENT = 1e9  # as a part of a tolerance: another shape, a refusal, or a NaN instead of a number


def main(arguments: Sequence[str]) -> int:
    """Arguments: the operator, the file of outputs to write or to read, and a file for the comparison."""
    name, outputs, *into = arguments
    paths = Paths(Path.cwd())
    operator = load_operator(paths, name, checked=True)
    found = _outputs(paths, operator, load(paths, operator))
    if not into:
        made = {f"{case} {index}": array for case, _, arrays in found for index, array in enumerate(arrays)}
        with Path(outputs).open("wb") as file:
            np.savez(file, allow_pickle=False, **made)
        return 0
    with np.load(outputs) as known:
        rows = [_compared(operator, case, model, arrays, known) for case, model, arrays in found]
    rows.sort(key=lambda row: -float(str(row["tolerance_used"])))
    nearest = rows[0] if rows else {}
    equal = sum(bool(row["equal"]) for row in rows)
    write_text(Path(into[0]), json.dumps({**nearest, "inputs": len(rows), "equal": equal}))
    return 0


def draw(arguments: Sequence[str]) -> int:
    """Write other drawn inputs. Arguments: the operator, the seed."""
    name, seed = arguments
    paths = Paths(Path.cwd())
    draw_inputs.run(paths, load_operator(paths, name, checked=True), seed=seed)
    return 0


def _compared(
    operator: Operator, case: str, model: Model, actual: Sequence[Array], known: np.lib.npyio.NpzFile
) -> dict[str, object]:
    """Return whether a case's outputs are equal to the last bit, and the part of the tolerance that they differ by."""
    expected = [known[key] for key in known if key.rpartition(" ")[0] == case]
    if len(expected) != len(actual):
        return {"case": case, "equal": False, "tolerance_used": DIFFERENT, "problem": "refused by one of the two"}
    used, equal, problem = 0.0, True, ""
    for declared, array, stored in zip(graph_outputs(operator.spec, model), actual, expected, strict=False):
        dtype = dtype_of(declared.type, model.types)
        other = stored.view(numpy_dtype(dtype))  # a file of NumPy has bfloat16 and float8 as bytes
        found = compare(array, other, tolerance=operator.spec.tolerances["custom"][dtype])
        used = DIFFERENT if found.problem else max(used, min(found.tolerance_used, DIFFERENT))
        equal = equal and compare(array, other, tolerance=EXACT).ok
        if not problem and used == DIFFERENT:
            problem = found.problem or f"{found.actual} instead of {found.expected}"
    return {"case": case, "equal": equal, "tolerance_used": used, "problem": problem}


def _outputs(paths: Paths, operator: Operator, loaded: LoadedLibrary) -> Iterator[tuple[str, Model, list[Array]]]:
    """Yield each case with its outputs, [] where the kernel rejects it."""
    for model in operator.models:
        for index, case in enumerate(model.cases):
            data = dataset.read(paths.data(operator.name, model.name, index))
            yield case.name, model, _call(operator, loaded, model, case.name, list(data.inputs.values()), index)
    if paths.drawn_inputs(operator.name).is_file():
        for one in drawn.read(paths.drawn_inputs(operator.name), operator.name):
            yield one.model.name, one.model, _call(operator, loaded, one.model, one.model.name, one.arrays, 0)


def _call(
    operator: Operator, loaded: LoadedLibrary, model: Model, name: str, arrays: list[Array], index: int
) -> list[Array]:
    step_log.now_running(f"case {name}")
    case = model.cases[index]
    given = arguments(operator.spec, case, tensors(operator.spec, model, case, arrays))
    try:
        with torch.no_grad():
            return [as_array(o) for o in as_tuple(with_attributes(loaded.overload, operator.spec, model)(*given))]
    except CALL_ERRORS:
        return []
