"""Each number of optional and variadic inputs, a scalar, and no element."""

from opmatrix.spec import Case, Model, Random, Values

WORDS = Values(values=(("a", "b\0c"), ("", "ä"), ("\0", "😀" * 20)))
OTHER = Values(values=(("x", ""), ("\0\0", "z"), ("longer than a std::string holds itself", "y")))

MODELS = (
    Model(
        name="all",
        dynamic={"first": ("N", "M"), "others": ("N", "M")},
        cases=(
            Case(name="words", inputs={"first": WORDS, "prefix": Values(values="> "), "others": (OTHER, WORDS)}),
            Case(
                name="random",
                inputs={
                    "first": Random(shape=(40, 30)),
                    "prefix": Values(values=""),
                    "others": (Random(shape=(40, 30)), Random(shape=(40, 30))),
                },
            ),
            Case(
                name="empty",
                inputs={
                    "first": Random(shape=(0, 3)),
                    "prefix": Values(values="\0"),
                    "others": (Random(shape=(0, 3)), Random(shape=(0, 3))),
                },
            ),
        ),
    ),
    Model(
        name="comma",
        attributes={"separator": ", "},
        cases=(Case(name="no_prefix", inputs={"first": WORDS, "others": (OTHER,)}),),
    ),
    Model(
        name="alone", cases=(Case(name="scalar", inputs={"first": Values(values="s"), "prefix": Values(values="t")}),)
    ),
)
