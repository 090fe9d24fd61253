"""In float32, a column is at the edge."""

from opmatrix.spec import Case, Model, Random, Values

X, BESIDE, AT_EDGE = Random(shape=(3, 2)), Values(values=(0.4, 0.1)), Values(values=(0.3, 0.1))
MODELS = (
    Model(name="double", types={"T": "float64"}, cases=(Case(name="double", inputs={"x": X, "at": BESIDE}),)),
    Model(name="single", types={"T": "float32"}, cases=(Case(name="single", inputs={"x": X, "at": AT_EDGE}),)),
)
