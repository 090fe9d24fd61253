"""Cases of csr_times: given offsets with an empty row in front, in the middle and at the end, and random ones."""

from opmatrix.spec import Case, Model, Random, Values

MODELS = (
    Model(
        name="float64",
        dynamic={"x": ("C",), "elements": ("Z",), "columns": ("Z",), "offsets": ("rows",)},
        cases=(
            Case(
                name="empty_rows",
                inputs={
                    "x": Random(shape=(3,)),
                    "elements": Random(shape=(4,)),
                    "columns": Random(shape=(4,)),
                    "offsets": Values(values=(0, 0, 3, 3, 4, 4)),
                },
            ),
            Case(
                name="random",
                inputs={
                    "x": Random(shape=(5,)),
                    "elements": Random(shape=(9,)),
                    "columns": Random(shape=(9,)),
                    "offsets": Random(shape=(7,)),
                },
            ),
        ),
    ),
)
