"""One case for each dtype."""

from opmatrix.spec import Case, Model, Random

X = {"x": Random(shape=(3, 2))}
MODELS = (
    Model(name="double", types={"T": "float64"}, cases=(Case(name="double", inputs=X),)),
    Model(name="single", types={"T": "float32"}, cases=(Case(name="single", inputs=X),)),
)
