"""Write a case as a folder that replays with only ONNX Runtime and NumPy: model, data, library, program. A
failing gradient replays with torch alone."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto

from opmatrix.basics.errors import UsageError, VerifyError, did_you_mean, missing
from opmatrix.basics.files import write_bytes, write_text
from opmatrix.data import dataset
from opmatrix.data.arrays import Array, cast, dtype_name
from opmatrix.data.compare import EXACT
from opmatrix.data.dataset import DataSet
from opmatrix.data.reference import Reference
from opmatrix.declaration.backward_operator import backward_of
from opmatrix.declaration.load import Operator
from opmatrix.judge import rounding
from opmatrix.ort_checks import cast_edges, fuzz, replay_case
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed
from opmatrix.records import verdict
from opmatrix.records.verdict import WRONG, name_case
from opmatrix.search import drawn as failing_input
from opmatrix.search.drawn import DrawnCase
from opmatrix.signature.signature import has_kernel
from opmatrix.sizes.variadic import with_outputs
from opmatrix.spec import Lowering

README = """{title}

{what}

Run it with ONNX Runtime {ort} and NumPy, without opmatrix:

    pip install "onnxruntime=={ort}.*" numpy
    python replay.py

model.onnx      {model}{casts}
{library}inputs.npz      its inputs, as input_0, input_1, ... in the order of case.json
expected.npz    the outputs of the reference, as output_0, output_1, ...{allowed}
case.json       names of inputs and outputs, and the tolerances
replay.py       runs the model and compares; exits with 1 where an output differs
"""


GRADIENT = """{title}

{what}

Call the formula of its gradient with torch {torch}, without opmatrix:

    python replay.py

torch_op.py     the formula: setup_context() and backward()
case.pt         the call, the outputs of the reference, the gradients of the outputs, and the expected gradient
replay.py       calls backward() and compares; exits with 1 where the gradient differs
"""


@dataclass(frozen=True, kw_only=True)
class SavedCase:
    """What a folder has of a case. `model` is the model, in words `model_is`. `allowed`: by how much an output may
    differ besides its tolerance, an array for each output, or none. `refusal`: why the reference rejects the inputs."""

    model: bytes
    model_is: str
    data: DataSet
    allowed: Sequence[Array] = field(default_factory=list)
    refusal: str = ""


def run(
    paths: Paths,
    operator: Operator,
    *,
    lowering: Lowering | None,
    cells: Sequence[Cell],
    case: str,
    into: Path | None = None,
) -> None:
    """Write the folder and print its path. Of several `cells`, and without a `lowering` of all, takes one in which the
    case fails, else the first. Raises UsageError for an unknown case, VerifyError without its files."""
    if fnmatch(case, name_case("gradient", "*")) and case not in _cases(operator):
        _save_gradient(paths, operator, case, into or paths.saved_case(f"{operator.name}-{case}"))
        return
    fails, lowering, cell = _where(paths, operator, lowering, cells, case)
    if case == name_case("drawn"):
        case = _drawn_name(paths, operator, lowering, cell)
    saved = _saved(paths, operator, lowering, cell, case)
    library = None
    if lowering == "custom" and operator.spec.runtime == "kernel":
        library = paths.ort_library(operator.name)
        if not library.is_file():
            raise VerifyError(missing(library, run=f"python -m opmatrix compile {operator.name}"))
    title = f"{operator.name}-{lowering}-{case}@{cell}"
    folder = into or paths.saved_case(title)
    content, casts = _with_float_edges(ModelProto.FromString(saved.model))
    tolerances = {str(dtype): tolerance for dtype, tolerance in operator.spec.tolerances[lowering].items()}
    limits = {name: tolerances.get(dtype_name(array), EXACT) for name, array in saved.data.outputs.items()}
    described = {
        "library": library.name if library else None,
        "inputs": [value.name for value in ModelProto.FromString(content).graph.input],
        "outputs": [{"name": name, "rtol": limit.rtol, "atol": limit.atol} for name, limit in limits.items()],
        "refusal": saved.refusal,
    }
    _make_folder(folder)
    write_bytes(folder / "model.onnx", content)
    if library:
        shutil.copyfile(library, folder / library.name)
    _save(folder / "inputs.npz", input=[*saved.data.inputs.values()])
    _save(folder / "expected.npz", output=[*saved.data.outputs.values()], allowed=saved.allowed)
    write_text(folder / "case.json", json.dumps(described, indent=1) + "\n")
    write_bytes(folder / "replay.py", Path(replay_case.__file__).read_bytes())
    indent = "\n                "
    own = f"{indent}its custom-op library, for this operating system and CPU\n"
    allowed = f";{indent}allowed_0, ...: what rounding of the inputs adds to the tolerance"
    readme = README.format(
        title=title,
        what=operator.spec.summary,
        ort=cell.ort,
        model=saved.model_is,
        casts=", with casts: NumPy lacks dtypes of its inputs or outputs" if casts else "",
        library=f"{library.name}{own}" if library else "",
        allowed=allowed if saved.allowed else "",
    )
    write_text(folder / "README.txt", readme)
    if len(cells) > 1:
        place = f"{operator.name}-{lowering}@{cell}"
        first = f"Taken from {place}, the first cell: no verdict says that {case} fails"
        print(f"{case} fails in {place}" if fails else first)
    _print_replay(paths, folder)


def _make_folder(folder: Path) -> None:
    """Make the folder. Raises UsageError where that fails, and for one that has files of others."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = any(folder.iterdir()) and not (folder / "replay.py").is_file()
    except OSError as error:
        raise UsageError(f"--into {folder}: {error.strerror}. Name a folder that can be written") from error
    if others:
        raise UsageError(f"--into {folder}: the folder has other files; name one that is empty or does not exist")


def _print_replay(paths: Paths, folder: Path) -> None:
    shown = folder.relative_to(paths.root) if folder.is_relative_to(paths.root) else folder
    print(f"Replay with: python {shlex.quote(str(shown / 'replay.py'))}")


def _save_gradient(paths: Paths, operator: Operator, case: str, folder: Path) -> None:
    """Write the folder of a gradient, from what the failing check kept. Raises UsageError where it kept nothing."""
    kept = paths.failing_case(operator.name, case).with_suffix(".pt")
    run = f"python -m opmatrix register {operator.name} --part gradient"
    if called := backward_of(operator.spec):
        raise UsageError(
            f"{operator.name}: the operator {called} computes its gradient, and torch alone cannot call that. "
            f"Replay: {run}"
        )
    if not kept.is_file():
        names = sorted(path.stem for path in kept.parent.glob(name_case("gradient", "*.pt")))
        has = f"it has {', '.join(names)}{did_you_mean(case, names)}" if names else f"a failing check keeps one: {run}"
        raise UsageError(f"{operator.name} has no gradient {case!r} that differs; {has}")
    from opmatrix.torch_checks import replay_gradient  # which imports torch

    _make_folder(folder)
    write_bytes(folder / "case.pt", kept.read_bytes())
    write_bytes(folder / "torch_op.py", paths.torch_op(operator.name).read_bytes())
    write_bytes(folder / "replay.py", Path(replay_gradient.__file__).read_bytes())
    title, torch = f"{operator.name}-{case}", installed().torch
    write_text(folder / "README.txt", GRADIENT.format(title=title, what=operator.spec.summary, torch=torch))
    _print_replay(paths, folder)


def _where(
    paths: Paths, operator: Operator, lowering: Lowering | None, cells: Sequence[Cell], case: str
) -> tuple[bool, Lowering, Cell]:
    """Return whether the case fails in one of the cells, and lowering and cell of that, else the first, "custom" before
    others."""
    if lowering and lowering not in operator.spec.lowerings:
        raise UsageError(f"{operator.name} has no lowering {lowering!r}; it has {', '.join(operator.spec.lowerings)}")
    lowerings = sorted(operator.spec.lowerings, key=lambda one: one != "custom")
    if case not in _cases(operator):  # a case of one lowering
        of = "decomposed" if case in _of_functions(operator) else "custom"
        lowerings = [one for one in lowerings if one == of] or lowerings
    places = [(one, cell) for one in ([lowering] if lowering else lowerings) for cell in cells]
    failing = next((place for place in places if _fails(paths.verdict(operator.name, *place), case)), None)
    return failing is not None, *(failing or places[0])


def _cases(operator: Operator) -> list[str]:
    return [case.name for model in operator.models for case in model.cases]


def _of_functions(operator: Operator) -> dict[str, str]:
    """Return the cases by the names that they have where they ran through the function body."""
    return {name_case("function", case): case for case in _cases(operator)}


def _fails(path: Path, case: str) -> bool:
    """Return whether a verdict says that a case fails, or the search by a drawn input of this name."""
    try:
        wrong = verdict.read(path).cases.of(*WRONG)
    except (FileNotFoundError, ValueError):
        return False
    return any(one.case == case or (one.kind == "drawn" and f"-{case} " in one.detail) for one in wrong)


def _drawn_name(paths: Paths, operator: Operator, lowering: Lowering, cell: Cell) -> str:
    path = paths.mismatches(paths.verdict(operator.name, lowering, cell))
    records = json.loads(path.read_text(encoding="utf-8"))["mismatches"] if path.is_file() else []
    if name := next((record["drawn"] for record in records if "drawn" in record), None):
        return str(name)
    raise UsageError(
        f"{operator.name}: no drawn input is known to fail in {cell}. Run the search, or give the name of one: "
        "its message has it"
    )


def _saved(paths: Paths, operator: Operator, lowering: Lowering, cell: Cell, case: str) -> SavedCase:
    """Return what the folder has of a case. Raises UsageError for an unknown one."""
    known = {c.name: (m, index) for m in operator.models for index, c in enumerate(m.cases)}
    name = case if case in known or lowering == "custom" else _of_functions(operator).get(case, case)
    if name in known:
        model, index = known[name]
        path = paths.model(operator.name, lowering, cell, model.name)
        if name != case:  # the custom node, of which ONNX Runtime runs the function body
            path = paths.function_model(operator.name, cell, model.name)
        if not path.is_file():
            raise VerifyError(missing(path, run=f"python -m opmatrix export {operator.name}"))
        data = dataset.read(paths.data(operator.name, model.name, index))
        return SavedCase(model=path.read_bytes(), model_is="the model that was verified", data=data)
    versions = {name_case("published", version): version for version in operator.published}
    custom = lowering == "custom"
    if custom and case in versions:
        path = paths.published_model(operator.name, versions[case])
        data = dataset.read(paths.published_data(operator.name, versions[case]))
        return SavedCase(model=path.read_bytes(), model_is=f"the model of version {versions[case]}", data=data)
    kept = paths.failing_case(operator.name, case).with_suffix(".cases"), paths.drawn_inputs(operator.name)
    drawn = custom and any(path.exists() for path in kept)
    if drawn and (one := failing_input.stored(paths, operator, case)):
        if not has_kernel(operator.spec):
            raise UsageError(
                f"{operator.name} has no kernel of its own that ONNX Runtime could run on {case}. Replay it in torch: "
                f"python -m opmatrix register {operator.name} --part search --case {case}"
            )
        return _drawn(paths, operator, one)
    every = ", ".join([*known, *(versions if custom else ())])
    raise UsageError(f"{operator.name} has no case {case!r}; it has {every}{did_you_mean(case, [*known, *versions])}")


def _drawn(paths: Paths, operator: Operator, one: DrawnCase) -> SavedCase:
    spec = operator.spec
    call = fuzz.drawn_call(spec, one.model, one.arrays)
    parts = with_outputs(spec, len(one.expected)).outputs if one.expected is not None else ()
    outputs = {
        part.name: cast(array, part.onnx_type) if part.onnx_type else array
        for part, array in zip(parts, one.expected or (), strict=True)
    }
    return SavedCase(
        model=fuzz.node_model(spec, call).SerializeToString(),
        model_is="the operator's node alone",
        data=DataSet(inputs=dict(fuzz.node_feeds(spec, call)), outputs=outputs),
        allowed=rounding.allowed(spec, one, Reference(paths, spec)),
        refusal=one.refusal,
    )


def _with_float_edges(model: ModelProto) -> tuple[bytes, bool]:
    """Return a model whose inputs and outputs NumPy has, and whether that needed casts to and from float32."""

    def type_of(element: int) -> str:  # as ONNX Runtime names it: tensor(bfloat16)
        return f"tensor({TensorProto.DataType.Name(element).lower()})"

    named = {
        kind: [SimpleNamespace(name=v.name, type=type_of(v.type.tensor_type.elem_type)) for v in values]
        for kind, values in (("inputs", model.graph.input), ("outputs", model.graph.output))
    }
    session = SimpleNamespace(get_inputs=lambda: named["inputs"], get_outputs=lambda: named["outputs"])
    content, casts = model.SerializeToString(), cast_edges.needs_casts(session)
    return cast_edges.with_float_edges(content, session) if casts else content, casts


def _save(path: Path, **kinds: Sequence[Array]) -> None:
    named: dict[str, Any] = {
        f"{kind}_{n}": _plain(array) for kind, arrays in kinds.items() for n, array in enumerate(arrays)
    }
    np.savez(path, **named)


def _plain(array: Array) -> Array:
    """Return the same values in a dtype that NumPy has by itself."""
    if array.dtype == np.object_:
        return array.astype(str)
    return array.astype(np.float32) if array.dtype.kind == "V" or dtype_name(array).startswith("float8") else array
