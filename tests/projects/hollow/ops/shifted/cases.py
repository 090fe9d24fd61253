"""One case of each dtype."""

from opmatrix import spec

INPUTS = {
    "x": spec.Random(shape=(5,)),
    "mask": spec.Random(shape=(5,)),
    "bias": spec.Random(shape=(5,)),
}
MODELS = tuple(
    spec.Model(
        name=f"plain_{dtype}",
        types={"T": dtype},
        attributes={"factor": 3.0},
        cases=(spec.Case(name=f"plain_{dtype}", inputs=INPUTS),),
    )
    for dtype in ("float32", "float64")
)
