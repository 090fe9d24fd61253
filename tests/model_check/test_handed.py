"""`opmatrix check` on the models with which its faults were reported."""

from __future__ import annotations

import re

import pytest

from tests.model_check import handed
from tests.model_check.handed import HANDED
from tests.model_check.outside import check

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
