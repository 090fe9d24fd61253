"""Strings with and without words."""

from opmatrix.spec import Case, Model, Random, Values

MODELS = (
    Model(
        name="rows",
        dynamic={"text": ("N",)},
        cases=(
            Case(
                name="words",
                inputs={"text": Values(values=("a bc", "", " ä  😀\0 ", "d")), "axes": Values(values=(0,))},
            ),
            Case(name="random", inputs={"text": Random(shape=(300,)), "axes": Values(values=(0,))}),
        ),
    ),
    Model(
        name="table",
        absent=("rest",),
        cases=(Case(name="table", inputs={"text": Values(values=(("a b", "c"),)), "axes": Values(values=(0, 1))}),),
    ),
)
