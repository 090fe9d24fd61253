"""Models of each rounding mode, range and kind of shape; the vectors are those of qonnx's tests and of its function."""

import math

from opmatrix.spec import Case, FromVectors, Model, Random, Tensor, Values, Vectors

COMMIT = "cc2ec17b7d6a60c93f180f4cb2666dd89b1b64a1"
TABLE = f"qonnx {COMMIT[:7]}, tests/custom_op/test_runding_mode.py"
COMPUTED = f"qonnx {COMMIT[:7]}, int_quant of src/qonnx/custom_op/general/intquant.py"
X, SCALE, ZEROPT, BITS = "x", "scale", "zeropt", "bitwidth"


def case(name: str, x: Tensor, *parameters: tuple[int, ...], bits: float | None = None, scale: float = 0.5) -> Case:
    """Return a case with the shapes of scale, zeropt and bitwidth; scalars where they are left out."""
    shapes = [*parameters, *[()] * 3][:3]
    bitwidth: Tensor = Random(shape=shapes[2]) if bits is None else Values(values=bits)
    return Case(
        name=name,
        inputs={
            X: x,
            SCALE: Random(shape=shapes[0], mean=scale, deviation=scale / 8),
            ZEROPT: Random(shape=shapes[1], deviation=2.0),
            BITS: bitwidth,
        },
    )


def vectors(name: str, *shapes: tuple[int, ...], source: str = COMPUTED, licence: str = "BSD-3-Clause") -> Case:
    """Return a case of a file; the shapes are those of x, scale, zeropt and bitwidth."""
    taken = dict(zip((X, SCALE, ZEROPT, BITS), (*shapes, (), (), ()), strict=False))
    return Case(
        name=name,
        inputs={part: FromVectors(shape=shape) for part, shape in taken.items()},
        expected=Vectors(path=f"vectors/{name}.npz", source=source, licence=licence),
    )


def rounding(mode: str) -> Model:
    """Return the model of a rounding mode with the row of qonnx's table, whose scale is 1."""
    name = mode.lower()
    return Model(
        name=name,
        attributes={"is_signed": True, "narrow": False, "rounding_mode": mode},
        dynamic={X: ("N",)},
        cases=(
            case(f"traced_{name}", Random(shape=(7,), deviation=4.0), bits=6.0),
            vectors(name, (10,), source=TABLE, licence="Apache-2.0"),
        ),
    )


SPECIAL = {0: math.nan, 1: math.inf, 2: -math.inf, 3: -0.0, 4: 1e30}
SIGNED = Model(
    name="signed",
    attributes={"is_signed": True, "narrow": False},
    dynamic={X: ("N",)},
    cases=(
        case("plain", Random(shape=(40,), deviation=9.0), bits=4.0),
        case("ties", Values(values=(-1.25, -0.75, -0.25, 0.25, 0.75, 1.25)), bits=4.0),
        case("special", Random(shape=(9,), specials=SPECIAL), bits=8.0),
        case("one_bit", Random(shape=(9,), specials=SPECIAL), bits=1.0),
        case("wide", Random(shape=(9,), deviation=1e9), bits=32.0),
        case("empty", Random(shape=(0,)), bits=8.0),
        vectors("bipolar", (11,)),
    ),
)
CHANNELS = Model(
    name="channels",
    attributes={"is_signed": True, "narrow": True},
    dynamic={X: ("N", None, "H", "W")},
    cases=(
        case("drawn", Random(shape=(2, 3, 5, 4), deviation=9.0), (3, 1, 1), (1, 3, 1, 1), (3, 1, 1)),
        case("strided", Random(shape=(1, 3, 2, 6), layout="transposed"), (3, 1, 1), (1, 3, 1, 1), (3, 1, 1)),
    ),
)
PER_CHANNEL = Model(
    name="per_channel",
    attributes={"is_signed": True, "narrow": True},
    cases=(
        case("traced_channels", Random(shape=(2, 3, 4, 5), deviation=9.0), (3, 1, 1), (1, 3, 1, 1), (1, 1, 1, 1)),
        vectors("channels", (2, 3, 4, 5), (3, 1, 1), (1, 3, 1, 1), (1, 1, 1, 1)),
    ),
)
UNSIGNED = Model(
    name="unsigned",
    attributes={"is_signed": False, "narrow": False},
    dynamic={X: (None, "N")},
    cases=(case("traced_unsigned", Random(shape=(3, 5), deviation=4.0), bits=3.0), vectors("unsigned", (3, 7))),
)
NARROW = Model(
    name="narrow_unsigned",
    attributes={"is_signed": False, "narrow": True},
    cases=(
        case("traced_narrow", Random(shape=(4, 6), deviation=4.0), (4, 1), bits=3.0),
        vectors("narrow_unsigned", (4, 6), (4, 1)),
    ),
)
SCALAR = Model(
    name="scalar",
    attributes={"is_signed": True, "narrow": False, "rounding_mode": "half_even"},
    cases=(case("scalar", Random(shape=(), deviation=4.0), bits=5.0),),
)
MODES = ("ROUND", "CEIL", "FLOOR", "UP", "DOWN", "half_up", "half_down")
MODELS = (SIGNED, CHANNELS, PER_CHANNEL, UNSIGNED, NARROW, SCALAR, *map(rounding, MODES))
