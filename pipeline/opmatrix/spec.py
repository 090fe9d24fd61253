"""The declaration of an operator: what `ops/<name>/spec.py` and `ops/<name>/cases.py` may say.

Typed frozen data and nothing else: no framework, no effect, no registry. A constructor never raises for an unknown or
a missing field: it keeps the mistake, so that `opmatrix.declaration.load` reports all mistakes of all files in one go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Literal

DType = Literal[
    "float16", "bfloat16", "float32", "float64",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "bool", "string",
]  # fmt: skip
AttributeKind = Literal["float", "int", "string", "bool", "floats", "ints", "strings", "bools", "tensor"]
Lowering = Literal["custom", "decomposed"]
MemoryLayout = Literal["contiguous", "transposed", "sliced", "expanded", "flipped"]
AttributeValue = float | int | str | bool | tuple[float, ...] | tuple[int, ...] | tuple[str, ...] | tuple[bool, ...]
Scalar = float | int | bool | str
Nested = Scalar | tuple["Nested", ...]

MISSING: Any = object()
"""Stands in a field that has no default and was not given; `opmatrix.declaration.load` reports it."""


class _KeepsMistakes(type):
    """Makes construction total: what does not fit is kept in ``__mistakes__`` instead of raised."""

    def __call__(cls, *args: Any, **given: Any) -> Any:
        known = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]  # every user is a dataclass
        required = [n for n, f in known.items() if f.default is f.default_factory is dataclasses.MISSING]
        made = super().__call__(**dict.fromkeys(required, MISSING) | {n: v for n, v in given.items() if n in known})
        mistakes = (
            tuple(("unknown", n) for n in given if n not in known)
            + tuple(("missing", n) for n in required if n not in given)
            + tuple(("positional", repr(a)) for a in args)
        )
        object.__setattr__(made, "__mistakes__", mistakes)
        return made


@dataclass(frozen=True, kw_only=True)
class Input(metaclass=_KeepsMistakes):
    """One input tensor.

    `type` is a dtype or the name of a type variable of `OpSpec.types`. `dims` names the sizes: a name stands for one
    size wherever it appears, an int is that size, ``"..."`` stands for any number of further sizes and comes last;
    None accepts every shape. `same_as` stands instead of it: the input before this one whose whole shape this has.

    Example:
        >>> x = Input(name="x", type="T", dims=("N", "C", "..."))
        >>> scale = Input(name="scale", type="T", dims=("C",), optional=True)
        >>> mask = Input(name="mask", type="bool", same_as="x")
    """

    name: str
    """Letters, digits and _; the same in ONNX, in torch's schema, in the reference and in the kernel."""
    type: str
    """A dtype such as ``"float32"``, or a name of `OpSpec.types`."""
    dims: tuple[str | int, ...] | None = None
    """Sizes: names, numbers from 0 on, and ``"..."`` at the end; None: any shape."""
    same_as: str | None = None
    """An input before this one, whose whole shape this has; instead of `dims`."""
    optional: bool = False
    """It may be absent: ``Tensor?`` in torch, an empty name in ONNX."""
    variadic: bool = False
    """Any number of tensors of one dtype, none as well: ``Tensor[]`` in torch. The last input alone."""
    doc: str = ""
    """What it is, for the schemas and the reference; one line."""


@dataclass(frozen=True, kw_only=True)
class Attribute(metaclass=_KeepsMistakes):
    """One attribute of the ONNX node; in torch an argument of the same kind.

    A float is float32 in ONNX and double in torch: binding and reference round it to float32. `minimum` and `maximum`
    are included; a NaN never fits them. A tensor attribute exists on ONNX's side only; with `torch_only` it exists on
    torch's alone, and the lowering says what becomes of it.

    Example:
        >>> groups = Attribute(name="num_groups", kind="int", minimum=1)
        >>> eps = Attribute(name="eps", kind="float", default=1e-5)
        >>> mode = Attribute(name="mode", kind="string", default="avg", allowed=("avg", "max"))
    """

    name: str
    """Letters, digits and _: its name in ONNX, in the reference and in the kernel."""
    kind: AttributeKind
    """A list (`floats`, `ints`, `bools`) is a tuple in Python; `strings` and `tensor` are not supported yet."""
    default: AttributeValue | None = None
    """A value of its kind; None: it must be given. Those without a default come first."""
    torch_name: str | None = None
    """The argument's name in torch's schema; None: `name`."""
    allowed: tuple[AttributeValue, ...] | None = None
    """The values that it may have, of a single value and not of a list; None: all."""
    minimum: float | None = None
    """The smallest value, of a float or an int; None: none."""
    maximum: float | None = None
    """The greatest value, of a float or an int; None: none."""
    torch_only: bool = False
    """torch's schema has it and ONNX's has not."""
    since: int | None = None
    """The version of the domain whose schema has it first, with a default that changes nothing; None: all have it."""
    doc: str = ""
    """What it is; one line."""


@dataclass(frozen=True, kw_only=True)
class SameAs(metaclass=_KeepsMistakes):
    """Shape rule: the shape of an input.

    Example:
        >>> y = Output(name="y", type="T", shape=SameAs(input="x"))
    """

    input: str
    """The name of an input that is required."""


@dataclass(frozen=True, kw_only=True)
class Dims(metaclass=_KeepsMistakes):
    """Shape rule: sizes by name (as in `Input.dims`), number, or an expression of them such as ``"2*N + 1"``.

    An attribute of kind int whose `minimum` is 0 or more may be named as well: ``("N", "C", "pooled_height")``.

    Example:
        >>> y = Output(name="y", type="T", shape=Dims(dims=("N", "2*C + 1", 3)))
    """

    dims: tuple[str | int, ...]
    """Names that required inputs have, numbers, or expressions with ``+ - * //`` and brackets."""


@dataclass(frozen=True, kw_only=True)
class FromKernel(metaclass=_KeepsMistakes):
    """Shape rule: the kernel decides, from the data. `rank` is known all the same.

    Example:
        >>> kept = Output(name="kept", type="int64", shape=FromKernel(rank=1))
    """

    rank: int
    """The number of axes."""


@dataclass(frozen=True, kw_only=True)
class Output(metaclass=_KeepsMistakes):
    """One output tensor; `type` as for an input.

    Example:
        >>> y = Output(name="y", type="float32", shape=SameAs(input="x"), doc="The normalised input.")
    """

    name: str
    """Letters, digits and _."""
    type: str
    """A dtype, or a name of `OpSpec.types` that a required input has."""
    shape: SameAs | Dims | FromKernel
    """How its shape follows."""
    doc: str = ""
    """What it is; one line."""


@dataclass(frozen=True, kw_only=True)
class Override(metaclass=_KeepsMistakes):
    """An ATen operator that this one replaces in exports, for the torch versions from `first` to `last` included.

    Example:
        >>> gelu = Override(name="aten::gelu", first="1.13")
    """

    name: str
    """Such as ``aten::gelu``; its default overload."""
    first: str | None = None
    """The first version of torch that has it, such as ``"2.0"``; None: every one."""
    last: str | None = None
    """The last version of torch that has it; None: every one."""


@dataclass(frozen=True, kw_only=True)
class TorchOp(metaclass=_KeepsMistakes):
    """The operator in torch: ``namespace::name``. Its schema follows from inputs, attributes and outputs.

    With `overrides` it is torch's own: exports of the ATen operators named there become this one, and there is no torch
    library of ours. With `python` it is defined by ops/<name>/torch_op.py, whose function `define()` returns what keeps
    the definition alive. A torch_op.py beside a kernel may hold `setup_context` and `backward`, for gradients.

    Example:
        >>> compiled = TorchOp(name="my_ops::group_norm")
        >>> in_python = TorchOp(name="my_ops::add_and_round", python=True)
        >>> own_of_torch = TorchOp(name="aten::gelu", overrides=(Override(name="aten::gelu"),))
    """

    name: str
    """``namespace::name``, letters, digits and _."""
    overrides: tuple[Override, ...] = ()
    """Operators of torch's own whose exports become this one."""
    python: bool = False
    """ops/<name>/torch_op.py defines it."""


@dataclass(frozen=True, kw_only=True)
class Headers(metaclass=_KeepsMistakes):
    """A folder of headers that an operator's C++ files include: one of the project, or, with `distribution`, one that a
    package of PyPI installs, named as its wheel has it.

    Example:
        >>> own = Headers(folder="third_party/include")
        >>> eigen = Headers(folder="cmeel.prefix/include/eigen3", distribution="cmeel-eigen")
    """

    folder: str
    """Relative to the project, or to where the package is installed."""
    distribution: str | None = None
    """The package's name on PyPI, such as ``cmeel-eigen``; None: the folder is of the project."""


@dataclass(frozen=True, kw_only=True)
class OnnxOp(metaclass=_KeepsMistakes):
    """The custom op in ONNX. `versions` are the versions of the domain that models may import.

    The schema changes at `since_version`, and at each `since` of an attribute.

    Example:
        >>> OnnxOp(domain="my_domain", op_type="GroupNorm").versions
        (1,)
        >>> evolved = OnnxOp(domain="my_domain", op_type="GroupNorm", versions=(1, 2))
    """

    domain: str
    """Letters, digits, ``_``, ``.`` and ``-``, and not one of ONNX's own."""
    op_type: str
    """The node's name, an identifier."""
    since_version: int = 1
    """The first version of the domain that has the operator; 1 is all that is supported yet."""
    versions: tuple[int, ...] = (1,)
    """Numbers from `since_version` on."""


@dataclass(frozen=True, kw_only=True)
class Tolerance(metaclass=_KeepsMistakes):
    """``|actual - expected| <= atol + rtol * |expected|``, as numpy.allclose has it. Why: in the operator's README.

    Example:
        >>> tolerances = {"float32": Tolerance(rtol=1e-5, atol=1e-6), "float64": Tolerance(rtol=1e-12, atol=0.0)}
    """

    rtol: float
    """Relative to the expected value; a number from 0 on."""
    atol: float
    """Absolute; a number from 0 on."""


@dataclass(frozen=True, kw_only=True)
class OpSpec(metaclass=_KeepsMistakes):
    """The one declaration of an operator.

    `types` maps each type variable to the dtypes that it takes. `tolerances` maps lowering, then dtype of an output.
    `runtime` says whose kernel computes in ONNX Runtime: one of ours, or a contrib op of ONNX Runtime itself. `kernel`
    is the text of kernel.h, for who would rather not have a file. `uses` names the operators whose nodes a lowering
    emits instead of a node of its own; its library is linked of theirs. `headers` are third parties', for the C++ files
    in native/<name>/.

    Example:
        >>> SPEC = OpSpec(
        ...     name="scaled_relu",
        ...     summary="Multiply by a factor what is above zero.",
        ...     onnx=OnnxOp(domain="my_domain", op_type="ScaledRelu"),
        ...     torch=TorchOp(name="my_ops::scaled_relu"),
        ...     types={"T": ("float32", "float64")},
        ...     inputs=(Input(name="x", type="T", dims=("...",)),),
        ...     attributes=(Attribute(name="scale", kind="float", default=1.0),),
        ...     outputs=(Output(name="y", type="T", shape=SameAs(input="x")),),
        ...     tolerances={
        ...         "custom": {
        ...             "float32": Tolerance(rtol=0.0, atol=0.0),
        ...             "float64": Tolerance(rtol=0.0, atol=0.0),
        ...         },
        ...     },
        ... )
        >>> SPEC.lowerings, SPEC.min_opset
        (('custom',), 9)
    """

    name: str
    """The folder's name: lower-case letters, digits and _, a letter first."""
    summary: str
    """What it does, in one sentence."""
    onnx: OnnxOp
    """Its node."""
    torch: TorchOp | None
    """Its function in torch; None: it exists in ONNX alone."""
    types: Mapping[str, tuple[DType, ...]] = field(default_factory=dict)
    """Type variables and the dtypes that each stands for: ``{"T": ("float32", "float64")}``."""
    inputs: tuple[Input, ...]
    """In order; at least one that is required."""
    attributes: tuple[Attribute, ...] = ()
    """In order; in torch they follow the inputs."""
    outputs: tuple[Output, ...]
    """In order; at least one."""
    tolerances: Mapping[Lowering, Mapping[DType, Tolerance]]
    """For each lowering, for each dtype that outputs have."""
    lowerings: tuple[Lowering, ...] = ("custom",)
    """What it becomes in ONNX: `custom`, one node; `decomposed`, nodes of ONNX's own operators."""
    min_opset: int = 9
    """The first opset that its lowerings write, 7 to 25."""
    runtime: Literal["kernel", "contrib"] = "kernel"
    """`kernel`: one of ours computes in ONNX Runtime; `contrib`: ONNX Runtime has the operator itself."""
    kernel: str | None = None
    """The text of kernel.h, instead of native/<name>/kernel.h."""
    uses: tuple[str, ...] = ()
    """Operators whose nodes its lowering writes instead of one of its own."""
    headers: tuple[Headers, ...] = ()
    """Folders of headers that its C++ files include."""


@dataclass(frozen=True, kw_only=True)
class Random(metaclass=_KeepsMistakes):
    """A tensor of normally distributed numbers, from a seed that follows from operator, case and input.

    `specials` puts values at flat (C order) indices: ``{0: math.nan}``. `layout` is how torch holds the tensor in
    memory: same numbers, other strides. Torch has no negative ones, so "flipped" is the reverse order of axes. ONNX
    Runtime has no strides.

    Example:
        >>> x = Random(shape=(2, 3), deviation=10.0, specials={0: float("nan")})
        >>> shape_of(Random(shape=(0, 4), layout="transposed"))
        (0, 4)
    """

    shape: tuple[int, ...]
    """Sizes; 0 is allowed."""
    mean: float = 0.0
    """Of the distribution. What is no float is rounded."""
    deviation: float = 1.0
    """Standard deviation of the distribution."""
    specials: Mapping[int, float] = field(default_factory=dict)
    """Values at flat indices, in C order."""
    layout: MemoryLayout = "contiguous"
    """How torch holds it in memory."""


@dataclass(frozen=True, kw_only=True)
class Values(metaclass=_KeepsMistakes):
    """A tensor given number by number, as nested tuples.

    Example:
        >>> shape_of(Values(values=((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))))
        (2, 3)
    """

    values: Nested
    """A number, or tuples of equal length, nested as deep as there are axes."""
    layout: MemoryLayout = "contiguous"
    """How torch holds it in memory."""


Tensor = Random | Values


@dataclass(frozen=True, kw_only=True)
class Case(metaclass=_KeepsMistakes):
    """One set of inputs, by the names of the declaration. `name` is unique within the operator.

    An optional input may be left out or None; a variadic one takes a tuple of tensors.

    Example:
        >>> plain = Case(name="plain", inputs={"x": Random(shape=(2, 3))})
        >>> several = Case(name="several", inputs={"xs": (Random(shape=(2,)), Random(shape=(5,)))})
    """

    name: str
    """Letters, digits and _; unique within the operator."""
    inputs: Mapping[str, Tensor | tuple[Tensor, ...] | None]
    """A tensor for each input; None or nothing for an absent one, a tuple for a variadic one."""


@dataclass(frozen=True, kw_only=True)
class Model(metaclass=_KeepsMistakes):
    """One exported model and the cases that run through it. Its first case is the example that the exporter traces.

    `types` binds each type variable. `dynamic` names, per input, the axes that stay symbolic (None: static); the same
    name is the same size. Without it every case has the shapes of the first. `names` renames inputs and outputs in
    the model's graph. `unsupported` is the reason why it cannot run: a model that runs all the same is a failure.

    `around` makes the model more than the operator: a function of the operator and its inputs that calls the operator
    once, ``def plus_x(op, x): return op(x) + x``, for NumPy arrays and torch tensors alike. Outputs keep the declared
    names, dtypes and shapes.

    Example:
        >>> MODELS = (
        ...     Model(
        ...         name="dynamic",
        ...         types={"T": "float32"},
        ...         attributes={"scale": 0.5},
        ...         dynamic={"x": ("N", None)},
        ...         cases=(
        ...             Case(name="plain", inputs={"x": Random(shape=(2, 3))}),
        ...             Case(name="empty", inputs={"x": Random(shape=(0, 3))}),
        ...         ),
        ...     ),
        ... )
    """

    name: str
    """Letters, digits, ``_``, ``.`` and ``-``; unique within the operator."""
    types: Mapping[str, DType] = field(default_factory=dict)
    """A dtype for each name of `OpSpec.types`."""
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    """Values of attributes; those that are left out have their default."""
    dynamic: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    """For an input a name per axis: ``{"x": ("N", None)}``; None: static."""
    domain_version: int = 1
    """The version of the domain that it imports: one of `OnnxOp.versions`."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Other names of inputs and outputs in the graph."""
    unsupported: str = ""
    """Why it cannot run; empty: it can."""
    around: Callable[..., Any] | None = None
    """A function ``(op, *inputs)`` that calls the operator once; None: the operator alone."""
    cases: tuple[Case, ...]
    """At least one; the first is traced."""


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape of a described tensor; a ragged `Values` gives the shape along its first elements."""
    if isinstance(tensor, Random):
        return tensor.shape
    shape: list[int] = []
    values: Nested = tensor.values
    while isinstance(values, tuple):
        shape.append(len(values))
        if not values:
            break
        values = values[0]
    return tuple(shape)


def given(case: Case, name: str) -> tuple[Tensor, ...]:
    """Return the tensors that a case gives for an input: none for an absent one, several for a variadic one."""
    found = case.inputs.get(name)
    if found is None:
        return ()
    return found if isinstance(found, tuple) else (found,)


def as_data(value: object) -> Any:
    """Return `value` as JSON data, field by field: the form in which a step is keyed by parts of a declaration."""
    if isinstance(value, str | int | None):  # most of them, and every doit command asks
        return value
    if fields := getattr(type(value), "__dataclass_fields__", None):
        return {"": type(value).__name__} | {name: as_data(getattr(value, name)) for name in fields}
    if isinstance(value, Mapping):
        return {str(k): as_data(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [as_data(v) for v in value]
    if isinstance(value, FunctionType | CodeType):  # by what it does, wherever it stands
        code = value.__code__ if isinstance(value, FunctionType) else value
        return as_data((code.co_name, code.co_code.hex(), code.co_names, code.co_varnames, code.co_consts))
    return repr(value) if isinstance(value, float) else value  # NaN and infinities are no JSON
