"""One small case."""

from opmatrix.spec import Case, Model, Random

CASE = Case(name="only", inputs={"x": Random(shape=(2, 3)), "w": Random(shape=(3,))})
MODELS = (Model(name="one", types={"T": "float32"}, cases=(CASE,)),)
