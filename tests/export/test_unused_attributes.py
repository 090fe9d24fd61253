"""A lowering with a constant in place of an attribute is refused, though no case has another value."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opmatrix.basics.errors import ExportError
from opmatrix.codegen import python_modules
from opmatrix.export import write_models
from opmatrix.export.generated_modules import GeneratedModules
from opmatrix.export.signature import ExpectedModel
from opmatrix.project.cells import Cell
from opmatrix.spec import Case, Model, Random
from tests.support.specs import attribute, declare

SPEC = declare(
    "leaky(x: float32[N], slope=0.25) -> y: float32 like x",
    attribute("mode='plain'", allowed=("plain", "odd")),
    torch="test::leaky",
    summary="A slope below zero.",
    lowerings=("decomposed",),
)
MODEL = Model(name="only", cases=(Case(name="only", inputs={"x": Random(shape=(3,))}),))
CELL = Cell(torch="2.13", exporter="legacy", opset=18, ort="1.31")


def right(g: Any, x: Any, slope: float, mode: str) -> Any:
    if mode == "odd":
        g.unsupported("no node computes it")
    return g.op("LeakyRelu", x, alpha_f=slope)


def constant(g: Any, x: Any, slope: float, mode: str) -> Any:
    return right(g, x, 0.25, mode)


def silent(g: Any, x: Any, slope: float, mode: str) -> Any:
    return right(g, x, slope, "plain")


def check(lowering: Any) -> None:
    schema: dict[str, Any] = {}
    exec(python_modules.render(SPEC)["schema.py"], schema)
    module: Any = SimpleNamespace(decomposed=lowering)
    generated = GeneratedModules(
        spec=SPEC, schema=module, fake=module, derived=SimpleNamespace(), handwritten=module,  # type: ignore[arg-type]
        path=Path("ops/leaky/lowering.py"), used=(), used_specs=(),
    )  # fmt: skip
    expected = ExpectedModel(spec=SPEC, model=MODEL, lowering="decomposed", cell=CELL, schema=schema["schema"](1))
    write_models.check([expected], generated)


def test_a_lowering_that_uses_all_attributes() -> None:
    check(right)


@pytest.mark.parametrize(
    ("lowering", "name", "values"), [(constant, "slope", "0.25, 0.125"), (silent, "mode", "'odd'")]
)
def test_a_constant_in_place_of_an_attribute(lowering: Any, name: str, values: str) -> None:
    with pytest.raises(ExportError) as error:
        check(lowering)
    message = f"leaky-decomposed@torch2.13-legacy-opset18: the lowering ignores '{name}': it emits the same nodes for "
    assert str(error.value).startswith(message) and values in str(error.value)
    assert str(error.value).endswith("g.unsupported() in ops/leaky/lowering.py")
