"""Cases of soft_cap: with and without a shift, in both dtypes."""

from opmatrix.spec import Case, Model, Random

ROW = Random(shape=(4,))
MODELS = tuple(
    Model(
        name=f"{name}_{dtype}",
        types={"T": dtype},
        attributes=attributes,
        dynamic={"x": ("N", "C"), "scale": ("C",)} | ({"shift": ("C",)} if shift else {}),
        cases=(
            Case(
                name=f"{name}_{dtype}",
                inputs={"x": Random(shape=(3, 4)), "scale": ROW} | ({"shift": Random(shape=(4,))} if shift else {}),
            ),
        ),
    )
    for dtype in ("float32", "float64")
    for name, shift, attributes in (("shifted", True, {"cap": 1.5}), ("plain", False, {}))
)
