"""`opmatrix check` on the models with which its faults were reported."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from tests.addons.check import handed
from tests.addons.check.handed import HANDED
from tests.addons.check.outside import check

pytestmark = pytest.mark.ort


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the line of each model."""
    folder = tmp_path_factory.mktemp("handed")
    code, text = check(folder, *handed.write(folder))
    assert code == 1 and f"{len(HANDED)} models: 10 right, 4 wrong, 1 unsupported\n" in text, text
    return {name: next(line for line in text.splitlines() if f" {name}.onnx: " in line) for name in HANDED}


@pytest.mark.parametrize("name", HANDED)
def test_a_model_that_was_handed_in(name: str, lines: dict[str, str]) -> None:
    outcome, words = HANDED[name].before
    assert re.match(rf". {HANDED[name].line}", lines[name]), f"{lines[name]}\nat 71b51ad8: {outcome}: {words}"


def test_inputs_are_drawn_where_a_folder_has_expected_outputs_alone(tmp_path: Path) -> None:
    """As in the wheel of onnx. At 71b51ad8 exit code 2: nothing for the input 'data_0'."""
    code, text = check(tmp_path, str(Path(onnx.__file__).parent / "backend/test/data/light/light_densenet121.onnx"))
    assert code == 0, text
    assert "inputs chosen at random: data_0 float32[1, 3, 224, 224]" in text
    assert "✓ agrees            with onnx.reference, node by node: 1746 nodes" in text
