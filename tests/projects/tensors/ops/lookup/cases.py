"""Models with tables of several sizes."""

from opmatrix.spec import AttributeValue, Case, Model, Random


def model(name: str, table: AttributeValue, kept: AttributeValue, offset: int) -> Model:
    cases = tuple(Case(name=f"{name}_{n}", inputs={"x": Random(shape=(n, 3))}) for n in (2, 5))
    attributes = {"table": table, "kept": kept, "offset": offset}
    return Model(name=name, attributes=attributes, dynamic={"x": ("N", None)}, cases=cases)


MODELS = (
    model("two", ((1.0, 2.0), (3.0, 4.0), (0.5, -2.0)), (True, False, True), 3),
    model("one", ((0.25,), (2.0,), (1.5,)), (True, True, True), 0),
    model("none", ((), (), ()), (False, True, True), -1),
)
