"""One case for each dtype."""

from opmatrix.spec import Case, Model, Random, Values

INPUTS = {"x": Random(shape=(3, 2)), "at": Values(values=(8.0, -16.0))}
MODELS = (
    Model(name="float64", types={"T": "float64"}, cases=(Case(name="float64", inputs=INPUTS),)),
    Model(name="float32", types={"T": "float32"}, cases=(Case(name="float32", inputs=INPUTS),)),
)
