"""Models with labels of several kinds."""

from opmatrix.spec import Case, Model, Values

TEXTS = ("a", "", "a\0b", "ä", "b", "c", "b")


MODELS = (
    Model(
        name="four",
        attributes={"labels": ("b", "", "a\0b", "ä")},
        dynamic={"texts": ("N",)},
        cases=(
            Case(name="some_four", inputs={"texts": Values(values=TEXTS)}),
            Case(name="last_four", inputs={"texts": Values(values=TEXTS[3:])}),
        ),
    ),
    *(
        Model(
            name=name,
            attributes={"labels": labels, "counted": counted},
            cases=(Case(name=f"some_{name}", inputs={"texts": Values(values=TEXTS)}),),
        )
        for name, labels, counted in (
            ("one", ("c",), ("a\0b", "c")),
            ("none", (), ()),
            ("long", (*(f"label {n} " * 30 for n in range(40)), "a"), ("", "b")),
        )
    ),
)
