"""The models that gelu is exported in, and the cases that run through each."""

import math

from opmatrix.spec import Case, Model, Random, Values

MODELS = (
    Model(
        name="seed",
        types={"T": "float32"},
        cases=(
            Case(name="seed", inputs={"x": Random(shape=(3, 3))}),
            Case(name="far", inputs={"x": Values(values=((-9.0, -5.5, -3.0), (-0.0, 1e-30, 3.0), (5.5, 9.0, 1e30)))}),
            Case(name="not_a_number", inputs={"x": Random(shape=(3, 3), specials={0: math.nan})}),
        ),
    ),
    Model(
        name="dynamic",
        types={"T": "float32"},
        dynamic={"x": ("N", "M")},
        cases=(
            Case(name="exported", inputs={"x": Random(shape=(2, 5), deviation=3.0)}),
            Case(name="empty", inputs={"x": Random(shape=(0, 3))}),
            Case(name="one_element", inputs={"x": Random(shape=(1, 1))}),
            Case(name="odd_sizes", inputs={"x": Random(shape=(13, 47), deviation=3.0)}),
        ),
    ),
    Model(
        name="tanh",
        types={"T": "float32"},
        attributes={"approximate": "tanh"},
        unsupported="com.microsoft::Gelu has the exact formula alone: the one that goes by tanh differs by up to 5e-4",
        cases=(Case(name="tanh", inputs={"x": Random(shape=(4, 7), deviation=2.0)}),),
    ),
    Model(
        name="tanh_float64",
        types={"T": "float64"},
        attributes={"approximate": "tanh"},
        unsupported="com.microsoft::Gelu has neither the formula that goes by tanh nor a kernel for float64",
        cases=(Case(name="tanh_float64", inputs={"x": Random(shape=(4, 7), deviation=2.0)}),),
    ),
    Model(
        name="float64",
        types={"T": "float64"},
        unsupported="ONNX Runtime's kernel of com.microsoft::Gelu takes float32 and float16, not float64",
        cases=(Case(name="float64", inputs={"x": Random(shape=(4, 7), deviation=2.0)}),),
    ),
)
