"""The one model and the one case of the seeds' test."""

from opmatrix.spec import Case, Model, Random, Values

CASE = Case(
    name="seed",
    inputs={
        "x": Random(shape=(3, 2, 1, 2)),
        "num_groups": Values(values=(2.0,)),
        "scale": Values(values=(2.0, 1.0)),
        "bias": Values(values=(1.0, 0.0)),
    },
)
MODELS = (Model(name="seed", attributes={"epsilon": 0.0}, names={"x": "X", "y": "Y"}, cases=(CASE,)),)
