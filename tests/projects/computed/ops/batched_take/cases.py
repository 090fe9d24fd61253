"""Cases of batched_take."""

from opmatrix.spec import Case, Model, Random


def case(name: str, *before: int, size: int, count: int, weight: bool = False) -> Case:
    given = {"x": Random(shape=(*before, size)), "index": Random(shape=(*before, count))}
    if weight:
        given["weight"] = Random(shape=(count, *before))
    return Case(name=name, inputs=given)


MODELS = (
    Model(
        name="rows",
        dynamic={"x": ("B", "N"), "index": ("B", "M")},
        cases=(case("rows", 2, size=5, count=3), case("more_rows", 4, size=3, count=6)),
    ),
    Model(name="weighted", cases=(case("weighted", 2, 3, size=4, count=2, weight=True),)),
)
