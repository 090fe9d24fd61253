"""Cases of unshuffle."""

from opmatrix.spec import Case, Model, Random


def case(name: str, *shape: int, count: int, **more: int) -> Case:
    given = {"x": Random(shape=shape), "factors": Random(shape=(count,))}
    return Case(name=name, inputs=given | {name: Random(shape=(size,), mean=9.0) for name, size in more.items()})


MODELS = (
    Model(
        name="images",
        attributes={"r": 2, "count": 3},
        dynamic={"x": ("N", None, None, None)},
        cases=(case("images", 2, 3, 4, 6, count=3), case("more", 5, 3, 4, 6, count=3)),
    ),
    Model(name="values", attributes={"r": 3, "count": 2}, cases=(case("values", 1, 2, 3, 6, count=2, values=4),)),
    Model(name="edges", attributes={"r": 1, "count": 2}, cases=(case("edges", 1, 2, 3, 2, count=2, edges=3),)),
    Model(
        name="all", attributes={"r": 3, "count": 2}, cases=(case("all", 2, 2, 3, 6, count=2, values=4, edges=9),)
    ),
)  # fmt: skip
