from opmatrix.spec import Case, Model, Random, Values

TABLE = Values(values=(3, 0, -7, 7, 0, 1, -1, 2, 5, 0, -3, 4, 6, -6, -2, -5))

MODELS = (
    Model(
        name="two",
        dynamic={"table": (None,), "indices": ("N",)},
        cases=(
            Case(
                name="small", inputs={"table": TABLE, "indices": (Values(values=(1, 15, 2)), Values(values=(0, 0, 3)))}
            ),
            Case(
                name="other_table",
                inputs={"table": Random(shape=(16,)), "indices": (Random(shape=(37,)), Random(shape=(37,)))},
            ),
            Case(name="none", inputs={"table": TABLE, "indices": (Values(values=(1,)), Values(values=(4,)))}),
            Case(name="empty", inputs={"table": TABLE, "indices": (Random(shape=(0,)), Random(shape=(0,)))}),
        ),
    ),
)
