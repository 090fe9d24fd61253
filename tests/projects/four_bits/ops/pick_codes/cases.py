from opmatrix.spec import Case, Model, Random, Values

MODELS = (
    Model(
        name="all",
        dynamic={"table": ("N",), "index": ("K",)},
        cases=(
            Case(
                name="small",
                inputs={"table": Values(values=(3, 0, -7, 7, 0)), "index": Values(values=(4, 3, 2, 1, 0, 0, 2))},
            ),
            Case(name="more", inputs={"table": Random(shape=(16,)), "index": Random(shape=(61,))}),
            Case(name="more_than_16", inputs={"table": Random(shape=(41,)), "index": Random(shape=(33,))}),
            Case(name="none", inputs={"table": Values(values=(0, 0, 5)), "index": Values(values=(1, 0))}),
            Case(name="empty", inputs={"table": Values(values=(1, 2)), "index": Random(shape=(0,))}),
        ),
    ),
)
