"""Write the inputs and expected outputs of every case, once for all versions of torch, opset and ONNX Runtime. Outputs
that were computed elsewhere come from an .npz, or a folder of ONNX test data; nothing of the file is run."""

from __future__ import annotations

import json
import math
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opmatrix.basics.errors import DataError, one_line
from opmatrix.basics.files import digests_by_path, write_text
from opmatrix.basics.step_log import LOGGED, Progress, detail
from opmatrix.data import dataset, torch_reference, truth
from opmatrix.data.arrays import SMALL, Array, cast, dtype_name, numpy_dtype
from opmatrix.data.case_arrays import broken_rule, case_array, case_arrays, declared_name, reference_attributes
from opmatrix.data.dataset import DataSet
from opmatrix.data.evaluated import as_outputs
from opmatrix.data.reference import Argument, Reference
from opmatrix.data.truth import Judge
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import GraphInput, case_arguments, graph_inputs, graph_outputs, output_name, present
from opmatrix.project.dtypes import FLOATS, FOUR_BITS
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import attribute_values, dtype_of
from opmatrix.sizes.known import Known, rule_text, shape_text
from opmatrix.sizes.variadic import nested, of_model, shapes_by_input
from opmatrix.spec import AttributeValue, Case, DType, FromVectors, Model, OpSpec, Vectors, shape_of


def read_case(spec: OpSpec, model: Model, case: Case, *, folder: Path) -> tuple[list[Array], tuple[Array, ...]]:
    """Return the inputs of a case that has `expected`, one per tensor, and its outputs from elsewhere.

    `folder` is that of the operator. Raises DataError for a file that is missing or damaged, that has pickled objects,
    or that lacks an array of the declared name, shape and dtype.
    """
    assert case.expected
    fed = graph_inputs(spec, model, case)
    taken = [feed for feed in fed if isinstance(feed.tensor, FromVectors)]
    outputs = [(part.name, dtype_of(part.type, model.types)) for part in of_model(spec, model).outputs]
    path, names = folder / case.expected.path, [declared_name(feed) for feed in taken]
    of_folder = path.is_dir()
    found = _folder(path, case.expected, names, [n for n, _ in outputs]) if of_folder else _npz(path, case.expected)
    arrays = {}
    for feed, name in zip(taken, names, strict=True):
        array = _array(found, name, dtype_of(feed.part.type, model.types), case.expected, narrow=False)
        if array.shape != (shape := shape_of(feed.tensor)):
            raise DataError(f"{case.expected.path}: {name!r} has the shape {array.shape}, the case has {shape}")
        if why := broken_rule(spec, model, case, feed, array):
            raise DataError(f"{case.expected.path}: input {name!r} {why}")
        arrays[name] = array
    inputs = [arrays[declared_name(f)] if f in taken else case_array(spec, model, case, f) for f in fed]
    return inputs, tuple(_array(found, name, dtype, case.expected, narrow=True) for name, dtype in outputs)


def _npz(path: Path, vectors: Vectors) -> Mapping[str, Array]:
    if not path.is_file():
        raise DataError(f"{vectors.path} is missing; it is a path below the operator's folder")
    if not zipfile.is_zipfile(path):  # NumPy would take it for a pickle
        raise DataError(f"{vectors.path} is damaged, or no .npz. Take it again from {vectors.source}")
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except Exception as error:  # what numpy, zipfile and zlib raise for a damaged file is not documented
        if "pickle" in str(error):
            why = "has pickled objects, which could run code. Save plain arrays with numpy.savez"
        else:
            why = f"is damaged: {one_line(error)}. Take it again from {vectors.source}"
        raise DataError(f"{vectors.path} {why}") from error
    return {name: array for name, array in found.items() if isinstance(array, np.ndarray)}


def _folder(path: Path, vectors: Vectors, inputs: Sequence[str], outputs: Sequence[str]) -> Mapping[str, Array]:
    """Return the arrays of ONNX test data: input_0.pb is the first tensor that the case takes from the file."""
    arrays = {}
    for kind, names in (("input", inputs), ("output", outputs)):
        for index, name in enumerate(names):
            file = path / f"{kind}_{index}.pb"
            try:
                arrays[name] = dataset.read_tensor(file)[1]
            except FileNotFoundError as error:
                raise DataError(f"{vectors.path}/{file.name} is missing; it is {kind} {name!r}") from error
            except ValueError as error:
                raise DataError(
                    f"{vectors.path}/{file.name} is not a tensor. Take it again from {vectors.source}"
                ) from error
    return arrays


def _array(arrays: Mapping[str, Array], name: str, dtype: DType, vectors: Vectors, *, narrow: bool) -> Array:
    """Return one array in the declared dtype. With `narrow`, one of a wider floating dtype is rounded to it."""
    if name not in arrays:
        raise DataError(f"{vectors.path} has no array {name!r}, it has: {', '.join(arrays) or 'none'}")
    array, target = arrays[name], numpy_dtype(dtype)
    if dtype == "string" and array.dtype.kind == "U":
        return array.astype(object)
    if dtype in (*SMALL, *FOUR_BITS) and array.dtype == np.dtype(f"V{target.itemsize}"):  # as NumPy writes and reads it
        return array.view(target)
    if dtype.startswith("float8") and array.dtype == np.uint8:  # their bits: NumPy reads no float8_e5m2
        return array.view(target)
    if dtype in FOUR_BITS and array.dtype in (np.int8, np.uint8):  # one in a byte
        return cast(array, dtype)
    if array.dtype != target:
        wider = narrow and dtype in FLOATS and array.dtype.kind == "f" and array.dtype.itemsize > target.itemsize
        if not wider:
            raise DataError(f"{vectors.path}: {name!r} is {dtype_name(array)}, declared: {dtype}")
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(array.astype(target)).reshape(array.shape)


_FULL = 2  # mistakes that the terminal shows whole
_NAMED = 8  # further cases that it names


def run(paths: Paths, operator: Operator) -> None:
    """Write all data sets, remove surplus ones. Raises DataError with all unusable cases and then writes nothing."""
    spec = operator.spec
    reference = Reference(paths, spec)
    in_torch = torch_reference.of(paths, spec) if spec.reference == "torch" else None
    if in_torch:
        in_torch.record()
    made: dict[Path, DataSet] = {}
    judges: dict[Path, Judge] = {}
    path = paths.cases(operator.name).relative_to(paths.root)
    mistakes: dict[tuple[str, str], list[str]] = {}  # by place and text
    progress, total = Progress(), sum(len(model.cases) for model in operator.models)
    for model in operator.models:
        for index, case in enumerate(model.cases):
            done = len(made) + sum(map(len, mistakes.values()))
            progress.show(f"{done} of {total} cases, now {case.name}", done, total)
            folder = paths.data(operator.name, model.name, index)
            try:
                made[folder], judges[folder] = _data_set(operator.spec, model, case, reference, paths.op(operator.name))
            except DataError as error:
                place = f"ops/{spec.name}/spec.py: {error.field}" if isinstance(error, _ShapeRuleError) else str(path)
                mistakes.setdefault((place, str(error)), []).append(case.name)
    reference.require_independent()
    if mistakes:
        raise DataError("\n".join(_shown(spec.name, mistakes)))
    for folder, data in made.items():
        dataset.write(folder, data)
    written = next(iter(made)).parent.parent
    for folder in {*written.glob("*/test_data_set_*")} - {*made}:
        shutil.rmtree(folder)
    for empty in (one for one in written.iterdir() if one.is_dir() and not any(one.iterdir())):
        empty.rmdir()
    _print_fallbacks(paths, operator, judges)
    if in_torch:
        in_torch.write(paths.reference_calls(operator.name))
    written_in = f"torch {in_torch.version}" if in_torch else "numpy"
    if spec.dependent_reference:
        written_in += ", not independent"
    # The hash of every file, since the steps of all cells read this one instead of hundreds.
    manifest = paths.data_manifest(operator.name)
    files = sorted(file for folder in made for file in folder.iterdir())
    record = {
        "files": digests_by_path(files, manifest.parent),
        "reference": written_in,
        "judged_in": {str(folder.relative_to(manifest.parent)): vars(judge) for folder, judge in judges.items()},
    }
    write_text(manifest, json.dumps(record, indent=1) + "\n")


class _ShapeRuleError(DataError):
    """An output of the reference has another shape than its shape rule gives. `field`: of the rule."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def _shown(name: str, mistakes: Mapping[tuple[str, str], Sequence[str]]) -> Iterator[str]:
    """Yield a line per mistake. The terminal gets the first ones and the names of the other cases, the log all."""
    lines = []
    for (place, text), (first, *others) in mistakes.items():  # several cases may have one, such as of the reference
        also = f". Also {', '.join(others)}" if others else ""
        lines.append(f"{place}: case {first!r}: {text.rstrip('.') if others else text}{also}")
    if len(lines) <= _FULL + 1 or LOGGED not in os.environ:
        yield from lines
        return
    detail("\n".join(lines[_FULL:]))
    yield from lines[:_FULL]
    cases = [case for names in list(mistakes.values())[_FULL:] for case in names]
    yield f"{name}: {len(cases)} more cases are unusable: {', '.join(cases[:_NAMED])}{', ...' * (len(cases) > _NAMED)}"


def _data_set(spec: OpSpec, model: Model, case: Case, reference: Reference, folder: Path) -> tuple[DataSet, Judge]:
    fed = graph_inputs(spec, model, case)
    for feed in fed:
        dtype = dtype_of(feed.part.type, model.types)
        _require_size(f"input {feed.part.name!r}", shape_of(feed.tensor), dtype)
    vectors: tuple[Array, ...] = ()
    if case.expected:
        inputs, vectors = read_case(spec, model, case, folder=folder)
    else:
        inputs = case_arrays(spec, model, case)
    expected, judge = _expected(spec, model, reference, tuple(case_arguments(spec, case, inputs)))
    called = of_model(spec, model)
    _check_shapes(called, fed, attribute_values(spec, model), expected)
    for part, output, vector in zip(called.outputs, expected, vectors, strict=False):  # there may be none
        if output.shape != vector.shape:
            has = f"the vectors ({case.expected.source if case.expected else ''}) have {vector.shape}"
            raise DataError(f"the reference gives {part.name!r} the shape {output.shape}, {has}")
    for part, output in zip(called.outputs, expected, strict=False):
        _require_size(f"output {part.name!r}", output.shape, dtype_name(output))
    names = [output_name(model, part) for part in graph_outputs(spec, model)]
    data = DataSet(
        inputs={feed.name: made for feed, made in zip(fed, inputs, strict=True)},
        outputs=dict(zip(names, present(spec, model, expected), strict=True)),
        vectors=dict(zip(names, present(spec, model, vectors), strict=True)) if vectors else {},
    )
    return data, judge


def _require_size(named: str, shape: Sequence[int], dtype: str) -> None:
    """Raise DataError for a tensor that no file of test data holds, such as one of a case with a 0 too many."""
    if dtype != "string" and (why := dataset.too_large(math.prod(shape) * np.dtype(dtype).itemsize)):
        raise DataError(f"{named} of shape {tuple(shape)} in {dtype} {why}")


def _expected(
    spec: OpSpec, model: Model, reference: Reference, arguments: tuple[Argument, ...]
) -> tuple[tuple[Array, ...], Judge]:
    """Return the outputs of the model, those of the operator or of `Model.around`, and what judged the operator's."""
    attributes = reference_attributes(spec, model)
    if model.around is None:
        found = truth.evaluate(reference, spec, model.types, arguments, attributes)
        return found.outputs, found.judge
    judge = truth.declared_judge(spec, model.types)

    def op(*arguments: Argument) -> Any:
        nonlocal judge
        found = truth.evaluate(reference, spec, model.types, arguments, attributes)
        judge = found.judge
        return nested(spec, found.outputs)

    outputs = as_outputs(spec, model.around(op, *arguments))
    for part, output in zip(of_model(spec, model).outputs, outputs, strict=True):
        if dtype_name(output) != (declared := dtype_of(part.type, model.types)):
            raise DataError(
                f"{model.around.__name__}() gives {part.name!r} as {dtype_name(output)}, declared: {declared}"
            )
    return outputs, judge


def _check_shapes(
    spec: OpSpec, fed: Sequence[GraphInput], attributes: Mapping[str, AttributeValue], expected: Sequence[Array]
) -> None:
    shapes = shapes_by_input((feed.part, shape_of(feed.tensor)) for feed in fed)
    known = Known(spec=spec, shapes=shapes, attributes=attributes)
    decided: dict[str, tuple[int, str]] = {}  # each size that the kernel decides, and the first output that has it
    for part, output in zip(spec.outputs, expected, strict=True):
        rule = rule_text(part.shape)
        try:
            wanted = known.output(part)
        except ValueError as error:
            raise DataError(f"output {part.name!r}: the shape rule {rule} gives no shape: {error}") from error
        if wanted is None or (output.ndim != len(wanted) and None in wanted):
            raise DataError(f"the reference gives {part.name!r} the shape {output.shape}, declared: {rule}")
        if output.ndim != len(wanted) or any(w not in (None, s) for w, s in zip(wanted, output.shape, strict=True)):
            raise _ShapeRuleError(f"outputs[{part.name!r}].shape", f"the reference gives {part.name!r} the shape "
                                  f"{output.shape}; the shape rule, {rule}, gives {shape_text(wanted)}. Correct this "
                                  "rule, or the reference")  # fmt: skip
        for axis, name in known.kernel_axes(part):
            size, first = decided.setdefault(name, (output.shape[axis], part.name))
            if size != output.shape[axis]:
                raise DataError(f"the reference gives {part.name!r} the shape {output.shape}; its shape rule, {rule}, "
                                f"has {name}, which is {size} in {first!r}")  # fmt: skip


def _print_fallbacks(paths: Paths, operator: Operator, judges: Mapping[Path, Judge]) -> None:
    """Print why cases are judged in the declared dtype although the declaration allows more, with their names."""
    cases: dict[str, list[str]] = {}
    for model in operator.models:
        narrow = truth.declared_judge(operator.spec, model.types).reason
        for index, case in enumerate(model.cases):
            judge = judges[paths.data(operator.name, model.name, index)]
            if judge.reason and not narrow:
                cases.setdefault(str(judge), []).append(case.name)
    for judged, names in cases.items():
        print(f"compared in the {judged}: case {', '.join(names)}")
