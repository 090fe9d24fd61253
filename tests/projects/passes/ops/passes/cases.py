"""One small case: tests and benchmarks/alarms.py time the rows of bench.py."""

from opmatrix.spec import Case, Model, Random

MODELS = (Model(name="plain", cases=(Case(name="plain", inputs={"x": Random(shape=(8,))}),)),)
