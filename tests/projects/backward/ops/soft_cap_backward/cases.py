"""Cases of soft_cap_backward: outputs of soft_cap need not fit the inputs, since the kernel takes them as they are."""

from opmatrix.spec import Case, Model, Random

MODELS = tuple(
    Model(
        name=dtype,
        types={"T": dtype},
        attributes={"cap": 1.5},
        dynamic={"grad_y": ("N", "C"), "x": ("N", "C"), "scale": ("C",), "y": ("N", "C")},
        cases=tuple(
            Case(
                name=f"{name}_{dtype}",
                inputs={name: Random(shape=shape) for name in ("grad_y", "x", "y")}
                | {"scale": Random(shape=shape[1:])},
            )
            for name, shape in (("plain", (3, 4)), ("no_rows", (0, 4)))
        ),
    )
    for dtype in ("float32", "float64")
)
