"""`doit tolerances` on a model that runs: errors, conditioning, and what is loose. The reference evaluator: the
precision that it takes where none is given, and op types that ONNX has too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from opmatrix.basics.errors import UsageError
from opmatrix.commands.main import Program
from opmatrix.commands.probe import Tolerances
from opmatrix.data import write_data
from opmatrix.data.arrays import Array
from opmatrix.data.reference import Reference
from opmatrix.declaration.load import Operator
from opmatrix.ort_checks import sessions, tolerances
from opmatrix.ort_checks.evaluator import ReferenceRun
from opmatrix.project.cells import Cell
from opmatrix.project.cpu_levels import NO_LEVELS
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, OnnxOp, Tolerance
from tests.support import double
from tests.support.double import SPEC
from tests.support.projects import with_reference

pytestmark = pytest.mark.ort

CELL = Cell(torch=None, exporter="node", opset=18, ort=double.CELL.ort)


def operator(tolerance: Tolerance) -> Operator:
    limits = {"float32": tolerance, "float64": tolerance}
    spec = replace(double.SPEC, lowerings=("decomposed",), tolerances={"decomposed": limits})
    return Operator(spec=spec, models=double.OPERATOR.models)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setattr(tolerances, "chosen_cells", lambda paths: (CELL,))
    return double.project(tmp_path)


def build(paths: Paths, factor: float) -> None:
    write_data.run(paths, operator(Tolerance(rtol=1e-3, atol=0.0)))
    path = paths.model("double", "decomposed", CELL, "dynamic")
    path.parent.mkdir(parents=True)
    path.write_bytes(double.model("decomposed", factor=factor).SerializeToString())
    paths.manifest("double", "decomposed", CELL).write_text("{}")


def test_errors_and_what_they_call_for(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    build(paths, factor=float(np.float32(2.0002)))
    tolerances.run(paths, operator(Tolerance(rtol=1e-3, atol=1e-3)))
    found = capsys.readouterr().out.splitlines()
    assert found[:3] == ["double: 4 cases, compared in float64", "", "decomposed float32 y"]
    assert "relative 1.0e-04" in found[3] and found[3].startswith("  ONNX Runtime ") and "opset 18:" in found[3]
    assert found[4].strip().startswith("inputs moved by 1 ULP:") and "e-07 of its size" in found[4]
    assert found[5].split() == ["declared:", "rtol=0.001", "atol=0.001"]
    assert found[6].split() == ["called", "for:", "rtol=0.0005", "atol=0.0005"]
    assert len(found) == 7


def test_a_tolerance_that_accepts_anything_is_loose(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    build(paths, factor=2.0)
    tolerances.run(paths, operator(Tolerance(rtol=1e9, atol=0.0)))
    found = capsys.readouterr().out.splitlines()
    assert found[-1].startswith("  LOOSE: ") and "times what is called for. Narrow it, or say why in" in found[-1]
    assert "error 0.0e+00" in found[3]


def test_the_largest_error_of_all_levels_counts(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only an operator that is used has them. The highest level, which is the last one, is right here."""
    now = []

    class Levels:
        def each(self) -> Iterator[str]:
            for level in (1.01, 1.0):
                now[:] = [level]
                yield str(level)

    class Session:
        def run(self, _: None, inputs: Mapping[str, Array]) -> list[Array]:
            return [x * x.dtype.type(2 * now[0]) for x in inputs.values()]

    class Sessions:
        def __init__(self, library: Path | None, *, cpu_levels: bool) -> None:
            assert library == paths.ort_library("double")
            self.levels = Levels() if cpu_levels else NO_LEVELS

        def sessions(self, content: bytes, *, settings: Sequence[str]) -> dict[str, Session]:
            return {setting: Session() for setting in settings}

    used = Operator(spec=replace(double.SPEC, name="used", cpu_levels=True), models=())
    monkeypatch.setattr(tolerances, "load_operator", lambda paths, name: {"used": used}[name])
    monkeypatch.setattr(sessions, "OrtSessions", Sessions)
    write_data.run(paths, double.OPERATOR)
    path = paths.model("double", "custom", CELL, "dynamic")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    one = Operator(spec=replace(double.SPEC, uses=("used",)), models=double.OPERATOR.models)
    (found,) = tolerances._in_ort(tolerances._Data(paths=paths, operator=one), "custom", [CELL]).values()
    assert found.relative == pytest.approx(0.01, rel=1e-3)


def test_what_is_not_built_and_a_missing_operator_are_one_sentence(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    for missing in ("data.json is missing or damaged", "no model of the lowering 'decomposed' is exported"):
        with pytest.raises(UsageError, match=f"{missing}(.|\n)*Run: doit double$"):
            tolerances.run(paths, operator(Tolerance(rtol=1e-3, atol=0.0)))
        write_data.run(paths, operator(Tolerance(rtol=1e-3, atol=0.0)))
    assert Tolerances.name in Program().get_cmds()
    assert Tolerances(config={}).parse_execute([]) == UsageError.exit_code
    assert "doit tolerances takes one operator, and was given 0" in capsys.readouterr().err


NAIVE = "import numpy as np\n\ndef double(x, *, factor):\n    return np.cumsum(x, axis=-1)\n"


def node_model(op_type: str, domain: str, size: int) -> ModelProto:
    """Return a model of one node from x to y."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in "xy")
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    node = helper.make_node(op_type, ["x"], ["y"], domain=domain)
    return helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=imports)


def test_a_reference_that_loses_digits_judges_in_float64(tmp_path: Path) -> None:
    model = node_model(SPEC.onnx.op_type, SPEC.onnx.domain, 20_000)
    run = ReferenceRun(model, [(SPEC, Reference(with_reference(tmp_path, "double", NAIVE), SPEC))])
    fed = np.random.Generator(np.random.PCG64(0)).normal(1.0, 1.0, 20_000).astype(np.float32)

    (found,) = run.run(None, {"x": fed})
    assert str(run.judge) == "float64"
    np.testing.assert_array_equal(found, np.cumsum(fed.astype(np.float64)).astype(np.float32))

    run.precision = "declared dtype"
    (plain,) = run.run(None, {"x": fed})
    assert (plain != found).any()


@pytest.mark.parametrize("op_type", ["Scan", "Loop", "If", "LeakyRelu"])
def test_an_op_type_that_onnx_has_too(op_type: str, tmp_path: Path) -> None:
    """Attributes of ONNX's operator are neither required nor defaults: LeakyRelu has alpha = 0.01 there."""
    alpha = Attribute(name="alpha", kind="float", default=0.25)
    spec = replace(SPEC, onnx=OnnxOp(domain="own.domain", op_type=op_type), attributes=(alpha,))
    reference = Reference(with_reference(tmp_path, "double", "def double(x, *, alpha):\n    return x * alpha\n"), spec)
    run = ReferenceRun(node_model(op_type, "own.domain", 2), [(spec, reference)])
    (found,) = run.run(None, {"x": np.array([4.0, -8.0], np.float32)})
    assert found.tolist() == [1.0, -2.0]
