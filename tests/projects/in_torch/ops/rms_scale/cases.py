"""Cases of rms_scale: with and without a weight."""

from opmatrix.spec import Case, Model, Random

X = Random(shape=(3, 5))
MODELS = tuple(
    Model(
        name=f"{name}_{dtype}",
        types={"T": dtype},
        attributes=attributes,
        dynamic={"x": ("N", "C")} | ({"weight": ("C",)} if weight else {}),
        cases=(Case(name=f"{name}_{dtype}", inputs={"x": X} | ({"weight": Random(shape=(5,))} if weight else {})),),
    )
    for dtype in ("float32", "float64")
    for name, weight, attributes in (("weighted", True, {}), ("plain", False, {"eps": 0.5}))
)
