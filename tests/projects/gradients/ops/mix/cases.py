"""Of the cases, none of float64 has a bias, and none has another axis than the last."""

from opmatrix.spec import Case, Model, Random

X, BIAS = {"x": Random(shape=(3, 2))}, {"bias": Random(shape=(2,))}
MODELS = (
    Model(name="double", types={"T": "float64"}, cases=(Case(name="double", inputs=X),)),
    Model(name="single", types={"T": "float32"}, cases=(Case(name="single", inputs=X | BIAS),)),
)
