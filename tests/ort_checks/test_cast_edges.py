"""Models with bfloat16, float8 and int4 inputs and outputs run in ONNX Runtime, whose Python interface takes none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from opmatrix.data.arrays import Array
from opmatrix.data.dataset import DataSet
from opmatrix.ort_checks import run_case
from opmatrix.ort_checks.cast_edges import CastSession, with_float_edges
from opmatrix.ort_checks.run_case import ModelRunner
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, Session, call

pytestmark = pytest.mark.ort

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def identity(opset: int, element: int = TensorProto.BFLOAT16) -> ModelProto:
    """Return a model of x and n that gives x twice, once as float32 as well."""
    x, n, y = (helper.make_tensor_value_info(name, element, ["K"]) for name in ("x", "n", "y"))
    n.type.tensor_type.elem_type = TensorProto.INT64
    wide = helper.make_tensor_value_info("wide", TensorProto.FLOAT, ["K"])
    nodes = [
        helper.make_node("Identity", ["x"], ["y"]),
        helper.make_node("Cast", ["x"], ["plain"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["n"], ["whole"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["plain", "whole"], ["wide"]),
    ]
    graph = helper.make_graph(nodes, "identity", [x, n], [y, wide])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def in_ort(model: bytes | str) -> Session:
    return OrtSessions(None).sessions(model, settings=["optimised"])["optimised"]


def every() -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint16).view(BFLOAT16)


@np.errstate(all="ignore")
@pytest.mark.parametrize("by_path", [False, True])
def test_each_value_goes_in_and_comes_out(by_path: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(identity(18), path)
    session = in_ort(str(path) if by_path else path.read_bytes())
    y, wide = call(session, {"x": every(), "n": np.zeros(1 << 16, np.int64)})
    assert (y.dtype, wide.dtype) == (BFLOAT16, np.float32)
    finite = ~np.isnan(every())
    assert np.array_equal(y.view(np.uint16)[finite], every().view(np.uint16)[finite]) and np.isnan(y[~finite]).all()
    assert np.array_equal(wide, every().astype(np.float32), equal_nan=True)


def test_runs_in_several_threads_share_their_cast_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(identity(18), path)
    runner = ModelRunner(path, name="identity", runtime=OrtSessions(None), operators=())
    cast: list[str] = []
    fed = CastSession._fed

    def counted(session: CastSession, name: str, array: Array) -> tuple[str, Array]:
        cast.extend([name] * (array.dtype == BFLOAT16))
        return fed(session, name, array)

    monkeypatch.setattr(CastSession, "_fed", counted)
    feed = {"x": np.ones(1000, BFLOAT16), "n": np.zeros(1000, np.int64)}
    assert runner.run_concurrently({"one": DataSet(inputs=feed, outputs={})}) == {}
    assert cast == ["x"]


def test_a_run_with_casts_takes_the_memory_of_its_inputs() -> None:
    session = in_ort(identity(18).SerializeToString())
    assert isinstance(session, CastSession)
    feed = session.cast({"x": np.ones(1000, BFLOAT16), "n": np.zeros(1000, np.int64)})
    assert run_case.bytes_of_run(session, feed, ()) == 1000 * (4 + 8)


def test_weights_in_another_file_are_found(tmp_path: Path) -> None:
    model = identity(18)
    model.graph.initializer.append(numpy_helper.from_array(np.arange(1000, dtype=np.int64), "n"))
    del model.graph.input[1]
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    assert (tmp_path / "weights").is_file()
    session = in_ort(str(path))
    _, wide = call(session, {"x": np.ones(1000, BFLOAT16)})
    assert np.array_equal(wide, np.arange(1000, dtype=np.float32) + 1)


@pytest.mark.parametrize(
    ("dtype", "opset", "message", "node"),
    [
        ("bfloat16", 13, "at opset 12, and NumPy has no bfloat16.* Export the model at a newer opset", b"Cast"),
        ("float8e5m2", 19, "has float8_e5m2 inputs or outputs at opset 18.* knows it from opset 19 on", b"saturate"),
        ("uint4", 21, "has uint4 inputs or outputs at opset 20.* from opset 21 on", b""),
    ],
)
def test_an_opset_without_a_dtype_is_refused(dtype: str, opset: int, message: str, node: bytes) -> None:
    """A custom node may give it beside nodes of ONNX's own, which take other dtypes."""
    values = [SimpleNamespace(name=name, type=f"tensor({dtype})") for name in ("x", "y")]
    session = SimpleNamespace(get_inputs=lambda: values[:1], get_outputs=lambda: values[1:])
    assert node in with_float_edges(identity(opset).SerializeToString(), session)
    with pytest.raises(ValueError, match=message):
        with_float_edges(identity(opset - 1).SerializeToString(), session)


@np.errstate(all="ignore")
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_each_float8_goes_in_and_comes_out(name: str) -> None:
    """Also the infinities of e5m2, which Cast would replace by its greatest value."""
    element = TensorProto.DataType.Value(name.upper().replace("_", ""))
    content = identity(19, element).SerializeToString()
    session = in_ort(content)
    bits = np.arange(256, dtype=np.uint8)
    values = bits.view(np.dtype(name))
    y, wide = call(session, {"x": values, "n": np.zeros(256, np.int64)})
    finite = ~np.isnan(values)
    assert y.dtype == values.dtype and np.array_equal(y.view(np.uint8)[finite], bits[finite])
    assert np.isnan(y[~finite]).all() and np.array_equal(wide, values.astype(np.float32), equal_nan=True)
    with pytest.raises(RefusedError):
        call(session, {"x": values.astype(np.float32), "n": np.zeros(256, np.int64)})


def test_bfloat16_goes_in_beside_float8() -> None:
    """As in a quantizer: ONNX Runtime refuses `saturate` in a Cast to bfloat16."""
    model = identity(19)
    model.graph.node[0].op_type = "Cast"
    model.graph.node[0].attribute.append(helper.make_attribute("to", TensorProto.FLOAT8E4M3FN))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT8E4M3FN
    session = in_ort(model.SerializeToString())
    y, _ = call(session, {"x": np.array([0.5, -448, 3.25], BFLOAT16), "n": np.zeros(3, np.int64)})
    assert y.dtype == np.dtype(ml_dtypes.float8_e4m3fn) and y.astype(np.float32).tolist() == [0.5, -448, 3.25]


@pytest.mark.parametrize("name", ["int4", "uint4"])
@pytest.mark.parametrize("count", [0, 1, 16, 33])
def test_int4_goes_in_and_comes_out(name: str, count: int) -> None:
    """ONNX Runtime's own QuantizeLinear, which takes each into float32, gives the same numbers."""
    element, dtype = TensorProto.DataType.Value(name.upper()), np.dtype(name)
    x, y = (helper.make_tensor_value_info(n, element, ["K"]) for n in ("x", "y"))
    numbers = helper.make_tensor_value_info("numbers", TensorProto.FLOAT, ["K"])
    nodes = [
        helper.make_node("Transpose", ["x"], ["y"]),
        helper.make_node("DequantizeLinear", ["x", "two"], ["numbers"]),
    ]
    two = [numpy_helper.from_array(np.float32(2), "two")]
    graph = helper.make_graph(nodes, "g", [x], [y, numbers], two)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = in_ort(model.SerializeToString())
    values = np.arange(count).astype(dtype)
    found, doubled = call(session, {"x": values})
    assert found.dtype == dtype and np.array_equal(found, values)
    assert doubled.tolist() == (2 * values.astype(np.float32)).tolist()
    with pytest.raises(RefusedError):
        call(session, {"x": values.astype(np.int8)})
