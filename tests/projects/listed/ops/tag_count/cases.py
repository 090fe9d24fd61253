"""Models with lists of several lengths, of strings of several lengths."""

from opmatrix.spec import AttributeValue, Case, DType, Model, Random


def model(name: str, dtype: DType, **attributes: AttributeValue) -> Model:
    cases = tuple(Case(name=f"{name}_{n}", inputs={"x": Random(shape=(n, 4))}) for n in (3, 5))
    return Model(name=name, types={"T": dtype}, attributes=attributes, dynamic={"x": ("N", None)}, cases=cases)


MODELS = (
    model("two", "float32", tags=("ab", "ä")),
    model("nul", "float32", tags=("a\0b", "", "c"), more=("d\0",), factor=0.5),
    model("empty", "float32", tags=(), more=()),
    model("none", "float64", tags=("",), more=None, factor=2.0),
    model("long", "float64", tags=("x" * 5000, "y"), more=("z", "zz")),
)
