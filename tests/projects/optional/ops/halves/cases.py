"""With and without the rest."""

from opmatrix.spec import Case, Model, Values

X = Values(values=(5, -5, 4, 0, -1, 9))
MODELS = (
    Model(name="both", cases=(Case(name="both", inputs={"x": X}),)),
    Model(name="half_alone", absent=("rest",), cases=(Case(name="half_alone", inputs={"x": X}),)),
)
