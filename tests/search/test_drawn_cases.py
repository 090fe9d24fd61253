"""Generated cases include every kind of input that is hard for a kernel, wherever the declaration allows it. A
counterexample as Python text, and its insertion into cases.py. The file of drawn cases: it keeps every bit, equal
content gives equal bytes, and reading it runs no code.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from opmatrix.basics.errors import DataError
from opmatrix.data.arrays import Array, float_limits, is_float, numpy_dtype
from opmatrix.data.case_arrays import case_arrays
from opmatrix.declaration.load import Operator, load_operators
from opmatrix.declaration.models import graph_inputs
from opmatrix.project.paths import Paths
from opmatrix.search import draw_models, drawn
from opmatrix.search.adopt_case import insert_into_models
from opmatrix.search.drawn import DrawnCase
from opmatrix.signature.python_source import source
from opmatrix.signature.signature import dtype_of, dtype_tuples
from opmatrix.spec import Case, Input, Model, Random, Values, tensors_of
from opmatrix.spec import MemoryLayout as Strides

OPERATORS = load_operators(Paths(Path(__file__).parents[2]))
PRIMES = (3, 5, 7, 13, 31)


def sizes(array: Any) -> Iterator[str]:
    if array.ndim == 0:
        yield "0-d"
    for size in array.shape:
        yield f"size {size}" if size < 3 else "a prime size" if size in PRIMES else "another size"


def _is_far(array: Any) -> bool:
    """Return whether all values are finite, and their mean is far from 0 for how they differ."""
    with np.errstate(over="ignore"):  # of huge numbers with both signs
        return array.size > 1 and bool(np.isfinite(array).all() and np.abs(array).min() > 100 * np.ptp(array))


def numbers(array: Any) -> Iterator[str]:
    """Yield the kinds of values in an array, with its dtype."""
    dtype = array.dtype
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        found = {"smallest": array == limits.min, "largest": array == limits.max}
    elif is_float(dtype):
        limits, array = float_limits(dtype), array.astype(np.promote_types(dtype, np.float32))
        size = np.abs(array)
        found = {
            "NaN": np.isnan(array),
            "infinity": np.isposinf(array),
            "-infinity": np.isneginf(array),
            "denormal": (size > 0) & (size < limits.tiny),
            "-0.0": (array == 0) & np.signbit(array),
            "huge": (size > math.sqrt(limits.max) / 100) & np.isfinite(array),
            "tiny": (size > 0) & (size < math.sqrt(limits.tiny) * 10),
            "a mean far from 0": np.atleast_1d(_is_far(array)),
        }
    else:
        found = {str(value): array == value for value in (True, False)}
    return (f"{what} in {dtype}" for what, where in found.items() if where.any())


def kinds(operator: Operator, model: Model) -> Iterator[str]:
    """Yield every kind of input in one generated model."""
    (case,) = model.cases
    spec = operator.spec
    yield " ".join(model.types.values())
    for part in spec.inputs:
        if part.optional or part.variadic:
            yield f"{part.name} {len(tensors_of(case, part.name))} times"
    for feed, array in zip(graph_inputs(spec, model, case), case_arrays(spec, model, case), strict=True):
        if has_shapes(feed.part):
            yield f"{feed.tensor.layout} in {feed.part.name}"
            yield from (f"{kind} in {feed.part.name}" for kind in sizes(array))
            yield from numbers(array)


def has_shapes(part: Input) -> bool:
    """Return whether any shape in the declaration is open: a parameter of one element has no strides."""
    return part.dims is None or any(not isinstance(d, int) for d in part.dims)


def legal(operator: Operator) -> Iterator[str]:
    """Yield every kind that a declaration allows."""
    spec = operator.spec
    yield from (" ".join(types.values()) for types in dtype_tuples(spec))
    for part in spec.inputs:
        if part.optional or part.variadic:
            yield from (f"{part.name} {n} times" for n in ((0, 1) if part.optional else (1, 2, 3)))
        if not has_shapes(part):
            continue
        dtypes = {dtype_of(part.type, types) for types in dtype_tuples(spec)}
        for layout in get_args(Strides):
            if dtypes != {"bool"} or layout != "expanded":  # random bools have no axis along which all are equal
                yield f"{layout} in {part.name}"
        for size in ("size 0", "size 1", "size 2", "a prime size"):
            yield f"{size} in {part.name}"
        if part.dims is None:
            yield f"0-d in {part.name}"
        for dtype in dtypes:
            if dtype == "bool":
                yield from ("True in bool", "False in bool")
            elif is_float(dtype):
                kinds = ["NaN", "infinity", "-infinity", "denormal", "-0.0", "huge", "tiny"]
                # Two bytes have too few digits for another number of the same size.
                kinds += ["a mean far from 0"] if dtype in ("float32", "float64") else []
                yield from (f"{kind} in {dtype}" for kind in kinds)
            else:
                yield from (f"{kind} in {dtype}" for kind in ("smallest", "largest"))


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_every_allowed_kind_is_generated(operator: Operator, tmp_path: Path) -> None:
    drawn = draw_models.collect(operator, examples=draw_models.enough(operator.spec), home=tmp_path)
    found = {kind for model in drawn for kind in kinds(operator, model)}
    assert {*legal(operator)} - found == set()


def test_generated_cases_are_reproducible(tmp_path: Path) -> None:
    """A failure must repeat, on every machine and with any other imports in the process."""
    operator = next(o for o in OPERATORS if o.name == "nms")
    first, second = (draw_models.collect(operator, examples=50, home=tmp_path) for _ in range(2))
    assert [m.name for m in first] == [m.name for m in second]
    assert first == second


MODEL = Model(
    name="found_1",
    types={"T": "float32"},
    attributes={"mode": "a'b", "sizes": (2,)},
    cases=(
        Case(
            name="found_1",
            inputs={
                "x": Random(
                    shape=(2, 3), deviation=1e30, specials={0: math.nan, 1: -math.inf, 2: 3.4028234663852886e38}
                ),
                "rest": (Values(values=((1.0,), (-0.0,))), Random(shape=(), layout="sliced")),
                "absent": None,
            },
        ),
    ),
)


def evaluated(text: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(f"from opmatrix.spec import *\nVALUE = {text}", namespace)
    return namespace["VALUE"]


def test_the_text_evaluates_to_the_model_and_has_short_lines() -> None:
    text = source(MODEL)
    assert repr(evaluated(text)) == repr(MODEL)
    assert max(map(len, text.splitlines())) <= 120
    assert 'layout="contiguous"' not in text and "mean" not in text  # defaults


def test_a_tensor_with_many_values_has_several_lines() -> None:
    values = Values(values=tuple(tuple(float(i * j) for j in range(9)) for i in range(9)))
    text = source(values)
    assert evaluated(text) == values
    assert max(map(len, text.splitlines())) < 120


@pytest.mark.parametrize(
    "models",
    [
        "MODELS = (A,)",
        "MODELS = (A, B)\n",
        "MODELS = (\n    A,\n    *(m for m in (B,)),\n)\n",
        "MODELS = ()",
        "MODELS = tuple([A, B])",
        "MODELS = A,\n",
        "MODELS: tuple[Model, ...] = (A, B)\n",
        "MODELS = (B,)\nMODELS = (A,)  # ä\n",
    ],
)
def test_the_new_case_is_the_last_and_the_others_stay(models: str) -> None:
    cases = f'"""Cäses."""\n\nfrom opmatrix.spec import Model\n\nA = Model(name="a", cases=())\nB = A\n{models}'
    before: dict[str, Any] = {}
    exec(cases, before)
    after: dict[str, Any] = {}
    text = insert_into_models(cases, source(MODEL), "y: 3 of 4 elements differ; " * 8)
    exec(text, after)
    assert after["MODELS"][:-1] == before["MODELS"]
    assert repr(after["MODELS"][-1]) == repr(MODEL)
    assert max(map(len, text.splitlines())) < 120
    assert "from opmatrix.spec import Case, Random, Values\n" in text


def test_a_file_without_models_is_refused() -> None:
    with pytest.raises(ValueError, match="assigns nothing to MODELS"):
        insert_into_models("for MODELS in ():\n    pass\n", source(MODEL), "")


NUMBERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16",
           "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")  # fmt: skip
SEVERAL = (Random(shape=()), Values(values=((1.0, True), (2, "ä\n"))), Values(values=()))


def model(tensors: int) -> Model:
    """Return a model whose case has this number of tensors."""
    inputs: dict[str, Any] = {
        "x": Random(shape=(2, 0, 3), mean=-1e-300, specials={0: math.inf, 2: -0.0, 5: 2**63 - 1}, layout="sliced"),
        "absent": None,
        "several": tuple(SEVERAL[i % 3] for i in range(tensors - 1)),
    }
    return Model(
        name="found_1",
        types={"T": "bfloat16"},
        attributes={"eps": 1e-5, "axes": (1, -2), "mode": "a\udc80", "flag": False, "scales": (0.1, -0.0)},
        cases=(Case(name="found_1", inputs=inputs),),
    )


def every_bit(dtype: Any) -> Array:
    """Return an array of a dtype with all 16 bits of float16 or bytes of others: NaN payloads and -0.0 among them."""
    if dtype == "bool":
        return np.array([[True, False]])
    return np.arange(2**16, dtype=np.uint16).view(numpy_dtype(dtype) if dtype != "float64" else np.float64).copy()


CASES = [
    DrawnCase(
        model=model(len(NUMBERS)),
        arrays=[every_bit(dtype) for dtype in NUMBERS],
        expected=None,
        refusal="too\nlarge ä",
    ),
    DrawnCase(
        model=model(3),
        arrays=[np.array([["", "ä€"], ["\n", "b"]], object), np.array("alone", object), np.zeros((3, 0), object)],
        expected=(np.array(-0.0, np.float16), np.zeros((0, 2), np.int64)),
        refusal="",
    ),
]


def bits(array: Array) -> tuple[str, tuple[int, ...], Any]:
    return str(array.dtype), array.shape, array.tolist() if array.dtype == object else array.tobytes()


def test_every_bit_comes_back(tmp_path: Path) -> None:
    drawn.write(tmp_path / "file", CASES)
    found = drawn.read(tmp_path / "file", "my_op")
    for before, after in zip(CASES, found, strict=True):
        assert (after.model, repr(after.model), after.refusal) == (before.model, repr(before.model), before.refusal)
        assert list(map(bits, after.arrays)) == list(map(bits, before.arrays))
        assert after.expected is before.expected is None or list(map(bits, after.expected or ())) == list(
            map(bits, before.expected or ())
        )
        assert all(a.flags.writeable and a.flags.aligned and a.flags.c_contiguous for a in after.arrays)


def test_equal_cases_give_equal_bytes(tmp_path: Path) -> None:
    drawn.write(tmp_path / "one", CASES)
    drawn.write(tmp_path / "two", drawn.read(tmp_path / "one", "my_op"))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


class Foreign:
    """Creates a file where something unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda whole: b"", id="empty"),
        pytest.param(lambda whole: whole[:-1], id="cut"),
        pytest.param(lambda whole: whole + b"\0", id="longer"),
        pytest.param(lambda whole: whole.partition(b"\n")[0], id="without_arrays"),
        pytest.param(lambda whole: b"[" * 100_000 + b"\n", id="nested"),
        pytest.param(lambda whole: b"{}\n" + whole, id="another_json"),
        pytest.param(lambda whole: b'[{"arrays":[["float32",[1e300]]]}]\n', id="another_size"),
        pytest.param(lambda whole: b'[{"arrays":[["O",[9]]],"expected":null}]\n' + b"a" * 72, id="pointers"),
        pytest.param(lambda whole: whole.replace(b'"Random"', b'"Path"'), id="another_class"),
        pytest.param(lambda whole: whole.replace(b'"mean"', b'"cosy"'), id="another_field"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "file"
    drawn.write(path, CASES)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"is missing or damaged\. Run: python -m opmatrix draw-inputs my_op"):
        drawn.read(path, "my_op")


def test_a_file_that_something_else_wrote_runs_no_code(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(pickle.dumps(Foreign(tmp_path / "ran")))
    with pytest.raises(DataError, match="damaged"):
        drawn.read(tmp_path / "file", "my_op")
    assert not (tmp_path / "ran").exists()
