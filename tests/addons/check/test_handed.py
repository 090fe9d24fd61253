"""`opmatrix check` on a model of the wheel of onnx, next to expected outputs of other models."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.addons.check.outside import check


@pytest.mark.ort
def test_inputs_are_drawn_where_a_folder_has_expected_outputs_alone(tmp_path: Path) -> None:
    code, text = check(tmp_path, str(Path(onnx.__file__).parent / "backend/test/data/light/light_densenet121.onnx"))
    assert code == 0, text
    assert "inputs chosen at random: data_0 float32[1, 3, 224, 224]" in text
    assert "✓ agrees            with onnx.reference, node by node: 1746 nodes" in text
