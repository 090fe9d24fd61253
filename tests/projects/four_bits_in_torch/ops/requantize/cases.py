"""All 16 values, odd and even counts, one and no element, with and without offset, and strided tensors."""

from opmatrix.spec import Case, Model, Random, Values

EVERY = (tuple(range(-8, 0)), tuple(range(8)))

MODELS = (
    Model(
        name="dynamic",
        dynamic={"w": ("N", "K"), "offset": ("N",)},
        cases=(
            Case(name="every_value", inputs={"w": Values(values=EVERY), "offset": Values(values=(15, 3))}),
            Case(name="odd", inputs={"w": Random(shape=(5, 3), deviation=4.0), "offset": Random(shape=(5,), mean=7.0)}),
            Case(name="one", inputs={"w": Values(values=((-8,),)), "offset": Values(values=(9,))}),
            Case(name="empty", inputs={"w": Random(shape=(0, 3)), "offset": Random(shape=(0,))}),
            Case(
                name="transposed",
                inputs={"w": Random(shape=(3, 4), deviation=4.0, layout="transposed"), "offset": Random(shape=(3,))},
            ),
            Case(
                name="sliced",
                inputs={
                    "w": Random(shape=(4, 5), deviation=4.0, layout="sliced"),
                    "offset": Random(shape=(4,), mean=7.0, layout="sliced"),
                },
            ),
        ),
    ),
    Model(
        name="without_offset",
        attributes={"factor": -3},
        cases=(Case(name="static", inputs={"w": Random(shape=(3, 7), deviation=3.0)}),),
    ),
)
