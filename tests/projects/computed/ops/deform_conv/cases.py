"""Cases of deform_conv."""

from opmatrix.spec import Case, Model, Random


def case(name: str, size: tuple[int, int], offset: tuple[int, int], *, more: bool = False) -> Case:
    """A case with 2 groups of channels and of offsets, 3 by 2 taps, a step of 2 down, 1 pixel of padding left."""
    given = {
        "x": Random(shape=(2, 4, *size)),
        "weight": Random(shape=(2, 2, 3, 2)),
        "offset": Random(shape=(2, 24, *offset)),
    }
    if more:
        given |= {"mask": Random(shape=(2, 12, *offset)), "bias": Random(shape=(2,))}
    return Case(name=name, inputs=given)


MODELS = (
    Model(
        name="moved",
        attributes={"groups": 2, "offset_groups": 2, "stride": (2, 1), "padding": (0, 1)},
        dynamic={"x": (None, None, "H", "W"), "offset": (None, None, "OH", "OW")},
        cases=(case("first", (7, 6), (3, 7)), case("larger", (9, 8), (4, 9))),
    ),
    Model(
        name="masked",
        attributes={"groups": 2, "offset_groups": 2, "dilation": (2, 1)},
        cases=(case("masked", (6, 5), (2, 4), more=True),),
    ),
)
