"""One number and several."""

from opmatrix.spec import Case, Model, Random


def model(name: str, *numbers: int) -> Model:
    case = Case(name=name, inputs={"x": Random(shape=(3, 2), deviation=9.0)})
    return Model(name=name, attributes={"numbers": numbers}, cases=(case,))


MODELS = (model("one", 5), model("three", 1, -2, 30))
