"""One small case, with and without the sums."""

from opmatrix.spec import Case, Model, Random

INPUTS = {"x": Random(shape=(2, 3)), "w": Random(shape=(3,))}
MODELS = (
    Model(name="both", cases=(Case(name="both", inputs=INPUTS),)),
    Model(name="alone", attributes={"with_sum": False}, absent=("total",), cases=(Case(name="alone", inputs=INPUTS),)),
)
