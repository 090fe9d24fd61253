"""One case."""

from opmatrix.spec import Case, Model, Random

MODELS = (Model(name="one", cases=(Case(name="plain", inputs={"x": Random(shape=(2, 3))}),)),)
