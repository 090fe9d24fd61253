"""Models without any of the attributes, with one of them, and with all."""

from opmatrix.spec import AttributeValue, Case, Model, Random

EMPTY: dict[str, AttributeValue] = {
    "shift": 0.0, "times": 0, "negate": False, "mode": "none", "weights": (), "steps": (), "more": 0,
}  # fmt: skip
FULL: dict[str, AttributeValue] = {
    "shift": 1.5, "times": 3, "negate": True, "mode": "double", "weights": (0.25, -1.0), "steps": (2, 3), "more": 4,
}  # fmt: skip


def model(name: str, version: int = 1, **attributes: AttributeValue) -> Model:
    case = Case(name=f"of_{name}", inputs={"x": Random(shape=(3, 4))})
    further = Case(name=f"more_{name}", inputs={"x": Random(shape=(5, 4))})
    return Model(
        name=name,
        attributes={"factor": 0.75, **attributes},
        dynamic={"x": ("N", None)},
        domain_version=version,
        cases=(case, further),
    )


MODELS = (
    model("absent"),
    model("absent_later", version=2, factor=2.0),
    model("none", **dict.fromkeys(EMPTY.keys() - {"more"})),
    model("empty", version=2, **EMPTY),
    model("full", version=2, **FULL),
    *(model(name, **{name: value}) for name, value in FULL.items() if name != "more"),
)
