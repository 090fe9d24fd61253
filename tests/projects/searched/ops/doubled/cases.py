"""Numbers from elsewhere: -2 to 3, doubled."""

from opmatrix.spec import Case, FromVectors, Model, Random, Vectors

PAPER = Vectors(path="original.npz", source="paper", licence="MIT")
ORIGINAL = Case(name="original", inputs={"x": FromVectors(shape=(2, 3))}, expected=PAPER)
MODELS = (Model(name="one", cases=(Case(name="drawn", inputs={"x": Random(shape=(2, 3))}), ORIGINAL)),)
