"""The declaration of an operator: the classes that `ops/<name>/spec.py` and `ops/<name>/cases.py` use.

They are frozen, typed data: no framework, no side effect, no registry. A constructor never raises for an unknown or a
missing field. It records the mistake, so that `opmatrix.declaration.load` reports the mistakes of all files at once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Literal

DType = Literal[
    "float16", "bfloat16", "float32", "float64",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "int4", "uint4", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "bool", "string",
]  # fmt: skip
AttributeKind = Literal["float", "int", "string", "bool", "floats", "ints", "strings", "bools", "tensor"]
Lowering = Literal["custom", "decomposed"]
MemoryLayout = Literal["contiguous", "transposed", "sliced", "expanded", "flipped"]
Scalar = float | int | bool | str
Nested = Scalar | tuple["Nested", ...]
AttributeValue = Nested | None
"""None: an attribute that is `optional` and absent."""

MISSING: Any = object()
"""The value of a field that has no default and was not given; `opmatrix.declaration.load` reports it."""


@functools.cache  # thousands of calls in each step
def _fields(cls: Any) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names of the fields of a dataclass, and of those that have no default."""
    fields = dataclasses.fields(cls)
    required = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
    return frozenset(f.name for f in fields), tuple(required)


class _KeepsMistakes(type):
    """Makes constructors record wrong arguments in ``__mistakes__`` instead of raising TypeError."""

    def _record(cls, *args: Any, **kwargs: Any) -> Any:
        known, required = _fields(cls)
        accepted = {n: v for n, v in kwargs.items() if n in known}
        instance = super().__call__(**dict.fromkeys(required, MISSING) | accepted)
        mistakes = (
            tuple(("unknown", n) for n in kwargs if n not in known)
            + tuple(("missing", n) for n in required if n not in kwargs)
            + tuple(("positional", repr(a)) for a in args)
        )
        object.__setattr__(instance, "__mistakes__", mistakes)
        return instance

    if not TYPE_CHECKING:  # pyright would take the result of each constructor for Any, and check no argument
        __call__ = _record


@dataclass(frozen=True, kw_only=True)
class ValueRule(metaclass=_KeepsMistakes):
    """Rule for the values of an input. Bindings raise an error for other values, and random inputs obey it.

    `minimum`, `maximum` and `index_into` are numbers, or expressions of sizes and attributes as in `Dims`. Limits are
    inclusive, and NaN is outside. `sorted`, `unique` and `spans` mean the values along the last axis. A binding checks
    a rule in one pass over the data; with ``checked_by="kernel"`` the kernel has to raise the error itself.

    Example:
        >>> index = Input(name="index", type="int64", dims=("M",), values=ValueRule(index_into="N"))
        >>> offsets = Input(
        ...     name="offsets",
        ...     type="int64",
        ...     dims=("S + 1",),
        ...     values=ValueRule(minimum=0, maximum="N", sorted="ascending", spans=True),
        ... )
        >>> weights = Input(name="weights", type="float32", values=ValueRule(minimum=0.0, finite=True))
    """

    minimum: float | str | None = None
    """The smallest value: a number, an attribute, or an expression of sizes; None: no limit."""
    maximum: float | str | None = None
    """The greatest value; None: no limit."""
    index_into: int | str | None = None
    """A size, such as ``"N"``: the values are indices from 0 to N - 1. Instead of `minimum` and `maximum`."""
    negative: bool = False
    """Whether indices may also count from the end: -N to N - 1."""
    allowed: tuple[float, ...] | None = None
    """The allowed values; None: all. Instead of limits."""
    finite: bool = False
    """Whether NaN and infinities are rejected."""
    sorted: Literal["ascending", "descending"] | None = None
    """The order along the last axis; equal neighbours are allowed, unless the values are `unique`."""
    unique: bool = False
    """Whether no value occurs twice along the last axis. Without `sorted`, only a kernel can check this."""
    spans: bool = False
    """Whether the first value along the last axis is `minimum` and the last one `maximum`, as in offsets 0, ..., N; for
    descending order the other way round. The last axis must have an element. With `sorted`, `minimum` and `maximum`."""
    non_empty: bool = False
    """Whether the tensor must have at least one element."""
    checked_by: Literal["binding", "kernel"] = "binding"
    """What raises the error; `kernel`: the kernel does, because it is cheaper there."""


@dataclass(frozen=True, kw_only=True)
class Input(metaclass=_KeepsMistakes):
    """One input tensor.

    `type` is a dtype or the name of a type variable of `OpSpec.types`. `dims` describes the sizes: a name means one
    size wherever it appears, an int is that size, an expression such as ``"2*G*K"`` is computed, and ``"..."``, once,
    means any number of further sizes, in each input its own unless `further_as` names an earlier input that shares
    them; None accepts every shape. Instead of `dims`, `same_as` names an earlier input that has the same shape.
    Expressions are described at `Dims`.

    Example:
        >>> x = Input(name="x", type="T", dims=("N", "C", "..."))
        >>> last = Input(name="x", type="T", dims=("...", "C"), rank="R")
        >>> offsets = Input(name="offsets", type="int64", dims=("N + 1",))
        >>> pads = Input(name="pads", type="int64", dims=("2*R",))
        >>> boxes = Input(name="boxes", type="T", dims=("A", "N + 4 - A"), at={"axis": 4})
        >>> scale = Input(name="scale", type="T", dims=("C",), optional=True)
        >>> mask = Input(name="mask", type="bool", same_as="x")
        >>> index = Input(name="index", type="int64", dims=("...", "M"), further_as="x")
        >>> codes = Input(name="codes", type="uint8", onnx_type="uint4", values=ValueRule(maximum=15))
    """

    name: str
    """Letters, digits and _; the same in ONNX, in the torch schema, in the reference and in the kernel."""
    type: str
    """A dtype such as ``"float32"``, or a name of `OpSpec.types`. ``"string"``, ``"int4"`` and ``"uint4"`` only with
    ``torch=None``: torch has no such tensors."""
    torch_name: str | None = None
    """The argument's name in `TorchOp.schema`; None: `name`. Only with a schema that is written."""
    onnx_type: Literal["int4", "uint4"] | None = None
    """The dtype in the ONNX node, where torch lacks it: ``"int4"`` for the `type` int8, ``"uint4"`` for uint8, with
    one number in each element. Exports have a Cast in front of the node. None: `type`."""
    dims: tuple[str | int, ...] | None = None
    """Sizes: names, integers >= 0, expressions, and once ``"..."``; None: any shape."""
    same_as: str | None = None
    """An earlier input that has the same shape; instead of `dims`."""
    further_as: str | None = None
    """An earlier required input whose ``"..."`` has the same sizes; None: they are independent."""
    rank: str | None = None
    """A name for its number of axes, for use in expressions."""
    at: Mapping[str, str | int] | None = None
    """Sizes of axes that attributes name: ``{"axis": 4}``. Only for a required input."""
    optional: bool = False
    """Whether it may be absent: ``Tensor?`` in torch, an empty name in ONNX."""
    variadic: bool = False
    """Takes any number of tensors of one dtype, also none: ``Tensor[]`` in torch. Only for the last input."""
    values: ValueRule | None = None
    """What its values must be; None: anything of its type."""
    no_effect: str = ""
    """Why its values may change no output of any case, such as ``"only its shape counts"``; empty: they must."""
    doc: str = ""
    """Its meaning, for the schemas and the operator's page; one line."""


@dataclass(frozen=True, kw_only=True)
class Attribute(metaclass=_KeepsMistakes):
    """One attribute of the ONNX node; in torch an argument of the same kind.

    A float is float32 in ONNX and double in torch: the binding and the reference round it to float32. `minimum` and
    `maximum` are inclusive; NaN is always outside. Only operators of ONNX alone have tensors. An attribute with
    `torch_only` exists only in torch, and the lowering decides how to translate it.

    Example:
        >>> groups = Attribute(name="num_groups", kind="int", minimum=1)
        >>> eps = Attribute(name="eps", kind="float", default=1e-5)
        >>> mode = Attribute(name="mode", kind="string", default="avg", allowed=("avg", "max"))
        >>> table = Attribute(name="table", kind="tensor", type="float32", dims=(None, 4))
        >>> dim = Attribute(name="dim", kind="int", optional=True)
        >>> signed = Attribute(name="is_signed", kind="int", default=1, onnx_name="signed")
    """

    name: str
    """Letters, digits and _: its name in the reference, in the kernel and in cases, and in ONNX unless `onnx_name` is
    another one."""
    kind: AttributeKind
    """A list (`floats`, `ints`, `bools`, `strings`) is a tuple in Python, and a `tensor` nested tuples; the kernel gets
    a TensorView, the reference an array."""
    type: DType | None = None
    """The dtype of a tensor."""
    dims: tuple[int | None, ...] | None = None
    """The sizes of a tensor: None is any size."""
    default: AttributeValue = None
    """A value of its kind; None: it is required, or `optional`. Required attributes come first."""
    optional: bool = False
    """Whether it may be absent, in a node, and None: ``int?`` in torch, with the default None. The kernel gets a
    ``std::optional``, the reference None."""
    torch_name: str | None = None
    """The argument's name in the torch schema; None: `name`."""
    onnx_name: str | None = None
    """The attribute's name in the ONNX node, which may be a keyword of C++ or Python; None: `name`."""
    allowed: tuple[AttributeValue, ...] | None = None
    """The allowed values of an attribute that is no list; None: all."""
    minimum: float | None = None
    """The smallest allowed value of a float or an int; None: no limit."""
    maximum: float | None = None
    """The greatest allowed value of a float or an int; None: no limit."""
    torch_only: bool = False
    """Whether only the torch schema has it, and the ONNX schema does not."""
    since: int | None = None
    """The first domain version whose schema has it, with a default that changes no result; None: all have it."""
    no_effect: str = ""
    """Why its value may change no output of any case, such as ``"a hint for the speed"``; empty: it must."""
    doc: str = ""
    """Its meaning; one line."""


@dataclass(frozen=True, kw_only=True)
class SameAs(metaclass=_KeepsMistakes):
    """Shape rule: the shape of an input, or the same with other axes.

    `replace` maps an axis to its size, or to None for an axis that is removed. An axis is a number, negative from the
    back, or the name of an attribute of kind int that names it.

    Example:
        >>> y = Output(name="y", type="T", shape=SameAs(input="x"))
        >>> largest = Output(name="largest", type="T", shape=SameAs(input="x", replace={"dim": "k"}))
        >>> indices = Output(name="indices", type="int64", shape=SameAs(input="x", replace={"dim": None}))
    """

    input: str
    """The name of a required input."""
    replace: Mapping[int | str, str | int | None] = field(default_factory=dict)
    """Axes that differ: ``{"dim": "K"}``, ``{-1: "2*K"}``, ``{0: None}``."""


@dataclass(frozen=True, kw_only=True)
class Dims(metaclass=_KeepsMistakes):
    """Shape rule: sizes by name (as in `Input.dims`), number, or an expression of them such as ``"2*N + 1"``.

    An expression computes with ``+ - * //`` and parentheses from

    - names of sizes and ranks of inputs;
    - attributes of kind int, and elements of attributes of kind ints, such as ``stride[0]``, if their `minimum`, or
      each of their `allowed` values, is 0 or more;
    - ``x.shape[dim]``: the size of the axis that an attribute of kind int names, negative from the back;
    - ``prod(...)``: the product of the sizes of ``"..."``.

    It may divide by a number, or by an attribute or element whose least value is 1 or more. ``"..."``, in an output and
    in ``prod(...)``, means the sizes of the first required input that has it.

    Example:
        >>> y = Output(name="y", type="T", shape=Dims(dims=("N", "2*C + 1", 3)))
        >>> flat = Output(name="flat", type="T", shape=Dims(dims=("prod(...)", "C")))
        >>> conv = Dims(dims=("...", "(L + 2*padding[0] - dilation[0]*(K - 1) - 1) // stride[0] + 1"))
    """

    dims: tuple[str | int, ...]
    """Names of sizes, numbers, expressions, and once ``"..."``."""


@dataclass(frozen=True, kw_only=True)
class FromKernel(metaclass=_KeepsMistakes):
    """Shape rule: the sizes depend on the data, and the kernel returns them.

    With `rank`, only the number of axes is known before. With `dims`, some sizes are: numbers, names and expressions as
    in `Dims`. With `input` and `replace`, it is the shape of an input with other axes, as in `SameAs`. A name that no
    input and no attribute has is a size that the kernel decides, the same in all outputs.

    Example:
        >>> kept = Output(name="kept", type="int64", shape=FromKernel(rank=1))
        >>> edges = Output(name="edges", type="int64", shape=FromKernel(dims=("E", 2)))
        >>> features = Output(name="features", type="T", shape=FromKernel(dims=("E", "C")))
        >>> reduced = Output(name="reduced", type="T", shape=FromKernel(input="x", replace={"dim": "S"}))
    """

    rank: int | None = None
    """The number of axes; instead of `dims`."""
    dims: tuple[str | int, ...] | None = None
    """A size for each axis; instead of `rank`."""
    input: str | None = None
    """The name of a required input, with `replace`; instead of `rank` and `dims`."""
    replace: Mapping[int | str, str | int | None] = field(default_factory=dict)
    """Axes of `input` that differ, as in `SameAs`: ``{"dim": "S"}``."""


@dataclass(frozen=True, kw_only=True)
class Output(metaclass=_KeepsMistakes):
    """One output tensor; `type` as for an input.

    A node in ONNX may leave out an `optional` output, by an empty name or none: the kernel then does not compute it.
    torch has no optional results: there it is always computed, or, where `optional` names a bool attribute, an empty
    tensor of shape (0,) while that is false. A node that names an output whose attribute is false gets the same empty
    tensor.

    A `variadic` output has any number of tensors of one dtype, at least one: a list in the reference.

    In torch, an operator can write an output into an argument, ``Tensor(a!)`` or ``Tensor!`` in `TorchOp.schema`: into
    the input that `writes` names, or, as ``out=``, into an argument that has the output's name. A node always has it.

    With `may_inplace` ONNX Runtime may give the kernel the same memory for the output as for that input, which saves
    memory where no other node reads the input. The kernel then must have read all that it needs of an element of the
    input before it writes that element of the output.

    Example:
        >>> y = Output(name="y", type="float32", shape=SameAs(input="x"), doc="The normalised input.")
        >>> new_x = Output(name="new_x", type="float32", shape=SameAs(input="x"), writes="x", may_inplace="x")
        >>> mask = Output(name="mask", type="bool", shape=SameAs(input="x"), optional=True)
        >>> counts = Output(name="counts", type="int64", shape=FromKernel(rank=1), optional="return_counts")
        >>> scaled = Output(name="scaled", type="T", shape=SameAs(input="xs"), variadic="xs")
        >>> chunks = Output(name="chunks", type="T", shape=Dims(dims=("N", "C // count")), variadic="count")
    """

    name: str
    """Letters, digits and _; the tensors of a variadic one are ``chunks_0``, ``chunks_1``, ..."""
    type: str
    """A dtype, or a name of `OpSpec.types` that is the type of a required input."""
    shape: SameAs | Dims | FromKernel
    """The rule for its shape."""
    onnx_type: Literal["int4", "uint4"] | None = None
    """As for an input; exports have a Cast after the node."""
    optional: bool | str = False
    """Whether a node may leave it out; or the attribute of kind bool that decides whether there is one."""
    writes: str | None = None
    """The required input that torch overwrites with it; None: torch returns it, or has an argument for it, ``out=``."""
    may_inplace: str | None = None
    """The required input, of the same type and shape, whose memory it may have; None: it has memory of its own."""
    variadic: str | None = None
    """What determines how many tensors it has, ``Tensor[]`` in torch: a variadic input, which then has at least one, an
    attribute of kind int with a `minimum` of 1 or more, or one of kind ints, by its number of items. With
    ``SameAs(input="xs")`` each has the shape of its tensor of xs, else all have one shape. None: it is one tensor. Only
    for the last output."""
    no_effect: str = ""
    """Why it may equal an input in every case of a dtype, such as ``"integers are whole"``; empty: it must not."""
    doc: str = ""
    """Its meaning; one line."""


@dataclass(frozen=True, kw_only=True)
class Override(metaclass=_KeepsMistakes):
    """An ATen operator that this one replaces in exports, for torch versions `first` to `last`, both inclusive.

    Example:
        >>> gelu = Override(name="aten::gelu", first="1.13")
    """

    name: str
    """Such as ``aten::gelu``: its default overload is replaced."""
    first: str | None = None
    """The first torch version that has it, such as ``"2.0"``; None: no lower limit."""
    last: str | None = None
    """The last torch version that has it; None: no upper limit."""


@dataclass(frozen=True, kw_only=True)
class TorchOp(metaclass=_KeepsMistakes):
    """The operator in torch: ``namespace::name``. Its schema follows from inputs, attributes and outputs.

    An operator that others call already keeps its `schema`. Each argument belongs to the input or attribute of that
    name (`torch_name`), in any order. The schema may have keyword-only arguments, an overload's name, and lists such as
    ``int[2]``, which one int fills. It may write arguments, ``Tensor(a!)``: see `Output`.

    With `overrides`, torch already has the operator: exports replace the named ATen operators with this one, and no
    torch library is built. With `python`, ops/<name>/torch_op.py defines it; its function `define()` returns the object
    that keeps the definition alive. For an operator with a kernel, torch_op.py can define `setup_context` and
    `backward`, for gradients.

    Example:
        >>> compiled = TorchOp(name="my_ops::group_norm")
        >>> in_python = TorchOp(name="my_ops::add_and_round", python=True)
        >>> own_of_torch = TorchOp(name="aten::gelu", overrides=(Override(name="aten::gelu"),))
        >>> kept = TorchOp(
        ...     name="my_ops::pad",
        ...     schema="my_ops::pad(Tensor self, int[2] size=1, *, float value=0, Tensor? mask=None) -> Tensor",
        ... )
        >>> batched = TorchOp(name="my_ops::conv", batch="N")
        >>> in_place = TorchOp(name="my_ops::add_", schema="my_ops::add_(Tensor(a!) x, Tensor y) -> ()")
        >>> to_float32 = TorchOp(
        ...     name="my_ops::dequantize",
        ...     schema="my_ops::dequantize(Tensor x, float scale, ScalarType dtype) -> Tensor",
        ...     fixed={"dtype": "float32"},
        ... )
    """

    name: str
    """``namespace::name``, letters, digits and _."""
    overrides: tuple[Override, ...] = ()
    """ATen operators that this one replaces in exports."""
    python: bool = False
    """Whether ops/<name>/torch_op.py defines it."""
    schema: str = ""
    """The torch schema as the owner has it; empty: it follows from the declaration."""
    fixed: Mapping[str, str | None] = field(default_factory=dict)
    """The one legal value of each argument of `schema` that is a ScalarType, Layout or Device, or one with ``?``, and
    has no default: a dtype's name, ``"strided"``, ``"cpu"``; None for a type with ``?``. A call with another value is
    an error."""
    batch: str = ""
    """The size, such as ``"N"``, whose indices the operator treats one by one, so that torch.vmap calls it once for all
    samples. ``"..."``: each index of these axes. Empty: torch.vmap calls it once per sample."""
    backward: str = ""
    """The operator in ops/ that computes the gradient; empty: torch_op.py does, or nothing. Its inputs are
    ``grad_<output>``, inputs and outputs of this operator by their names, its outputs ``grad_<input>``."""


@dataclass(frozen=True, kw_only=True)
class Headers(metaclass=_KeepsMistakes):
    """A folder of headers that an operator's C++ files include: a folder of the project, or, with `distribution`, one
    that a package of PyPI installs.

    Example:
        >>> own = Headers(folder="third_party/include")
        >>> eigen = Headers(folder="cmeel.prefix/include/eigen3", distribution="cmeel-eigen")
    """

    folder: str
    """Relative to the project's root, or to the folder into which the package is installed."""
    distribution: str | None = None
    """The package's name on PyPI, such as ``cmeel-eigen``; None: a folder of the project."""


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
    """Letters, digits, ``_``, ``.`` and ``-``; not a domain of ONNX itself."""
    op_type: str
    """The node's op type, an identifier."""
    since_version: int = 1
    """The first version of the domain that has the operator; only 1 is supported yet."""
    versions: tuple[int, ...] = (1,)
    """Versions that models may import, none below `since_version`."""


@dataclass(frozen=True, kw_only=True)
class Tolerance(metaclass=_KeepsMistakes):
    """``|actual - expected| <= atol + rtol * |expected|``, as in numpy.allclose. The operator's README has the reason.

    Example:
        >>> tolerances = {"float32": Tolerance(rtol=1e-5, atol=1e-6), "float64": Tolerance(rtol=1e-12, atol=0.0)}
    """

    rtol: float
    """Relative to the expected value; >= 0."""
    atol: float
    """Absolute; >= 0."""


@dataclass(frozen=True, kw_only=True)
class OpSpec(metaclass=_KeepsMistakes):
    """The declaration of an operator: the value of SPEC.

    `types` maps each type variable to its dtypes. `tolerances` maps a lowering, then the dtype of an output.
    `runtime` selects the kernel that ONNX Runtime runs: the operator's own, or a contrib op of ONNX Runtime. `kernel`
    is an inline kernel: the content of kernel.h. `uses` names the operators whose nodes the lowering emits instead of
    one node of its own; the library is linked from the objects of these operators. `headers` lists third-party
    headers for the C++ files in native/<name>/.

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
    """The folder's name: lower-case letters, digits and _; starts with a letter."""
    summary: str
    """What it does, in one sentence."""
    onnx: OnnxOp
    """The custom op in ONNX."""
    torch: TorchOp | None
    """The operator in torch; None: it exists only in ONNX."""
    types: Mapping[str, tuple[DType, ...]] = field(default_factory=dict)
    """Type variables and the dtypes of each: ``{"T": ("float32", "float64")}``."""
    inputs: tuple[Input, ...]
    """In order; at least one is required."""
    attributes: tuple[Attribute, ...] = ()
    """In order; in the torch schema they follow the inputs."""
    outputs: tuple[Output, ...]
    """In order; at least one."""
    tolerances: Mapping[Lowering, Mapping[DType, Tolerance]]
    """For each lowering, for each dtype of an output."""
    lowerings: tuple[Lowering, ...] = ("custom",)
    """How it is exported: `custom`, as one node; `decomposed`, as nodes of ONNX's own operators."""
    min_opset: int = 9
    """The first opset for which its lowerings emit nodes, 7 to 25."""
    runtime: Literal["kernel", "contrib"] = "kernel"
    """`kernel`: ONNX Runtime runs the operator's own kernel; `contrib`: ONNX Runtime has the operator."""
    kernel: str | None = None
    """The content of kernel.h, instead of the file native/<name>/kernel.h."""
    uses: tuple[str, ...] = ()
    """Operators whose nodes its lowering emits instead of one of its own."""
    headers: tuple[Headers, ...] = ()
    """Folders of third-party headers that its C++ files include."""
    discontinuous: str = ""
    """Why its floating outputs jump, such as ``"rounds x / step"``: the reference is then evaluated in the declared
    dtype, not in float64. Empty: they do not. Integer and bool outputs need no reason."""
    cpu_levels: bool = False
    """Whether the kernel is compiled for x86-64-v2, v3 (AVX2) and v4 (AVX-512), and each call takes the highest level
    that the processor has. All levels of the processor are tested. False: once, for every x86-64."""
    elementwise: bool = False
    """Whether each element of each output depends on the elements at the same position of the inputs and on nothing
    else, not on sizes either. All inputs and outputs have one shape. The kernel then gets tensors that all are in
    torch's memory format channels_last or channels_last_3d without a copy, with the axes in the order of memory: batch,
    height, width, channels. The outputs have that format, too."""
    full_range: bool = False
    """Whether the kernel is right for finite numbers of any size. The search then tries numbers whose squares their
    dtype cannot hold."""
    reference: Literal["numpy", "torch"] = "numpy"
    """What ops/<name>/reference.py is written in. `torch`: it takes and returns tensors, and runs in a process of its
    own, which must not call the operator."""
    dependent_reference: str = ""
    """Why reference.py may use what it judges, such as ``"calls the C++ library that the kernel wraps"``: files of
    native/ and build/, libraries of its own, other processes. The report then has "reference: not independent". Empty:
    it may not."""


@dataclass(frozen=True, kw_only=True)
class Random(metaclass=_KeepsMistakes):
    """A tensor of normally distributed values, from a seed that follows from operator, case and input.

    For an input with a `ValueRule`, the values obey it. Between two limits, or among allowed values, they are uniformly
    distributed with the default mean and deviation, are mostly the ends with a large deviation, and all equal with 0.

    `specials` replaces values at flat (C order) indices: ``{0: math.nan}``. `layout` is the memory layout in torch: the
    same values with other strides. torch has no negative strides, so "flipped" reverses the order of axes. ONNX Runtime
    has no strides. Strings have up to eight characters, of one to four bytes each; only `shape` counts.

    Example:
        >>> x = Random(shape=(2, 3), deviation=10.0, specials={0: float("nan")})
        >>> shape_of(Random(shape=(0, 4), layout="transposed"))
        (0, 4)
    """

    shape: tuple[int, ...]
    """Sizes; 0 is allowed."""
    mean: float = 0.0
    """Mean of the distribution. Values of other dtypes than floats are rounded. Around a mean from 0 on, those of
    unsigned dtypes are absolute values."""
    deviation: float = 1.0
    """Standard deviation of the distribution."""
    specials: Mapping[int, float] = field(default_factory=dict)
    """Values at flat indices (C order) that replace the random ones."""
    layout: MemoryLayout = "contiguous"
    """Memory layout in torch."""


@dataclass(frozen=True, kw_only=True)
class Values(metaclass=_KeepsMistakes):
    """A tensor whose values are given, as nested tuples.

    Example:
        >>> shape_of(Values(values=((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))))
        (2, 3)
    """

    values: Nested
    """A value, or tuples of equal length, one level for each axis."""
    layout: MemoryLayout = "contiguous"
    """Memory layout in torch."""


@dataclass(frozen=True, kw_only=True)
class FromVectors(metaclass=_KeepsMistakes):
    """A tensor whose values are in the file of the case's `expected`; its shape is needed before the file is read.

    Example:
        >>> shape_of(FromVectors(shape=(2, 6, 4)))
        (2, 6, 4)
    """

    shape: tuple[int, ...]
    """Sizes, as in the file."""
    layout: MemoryLayout = "contiguous"
    """Memory layout in torch."""


@dataclass(frozen=True, kw_only=True)
class Vectors(metaclass=_KeepsMistakes):
    """Inputs and expected outputs that were computed elsewhere, such as the original's own test vectors.

    Example:
        >>> original = Vectors(path="vectors/two_groups.npz", source="example.org/groupnorm 1.2", licence="MIT")
    """

    path: str
    """Below ops/<name>/: an .npz with inputs and outputs by name, or a folder of ONNX test data (input_0.pb, ...)."""
    source: str
    """Who computed them, with what; it is in the messages."""
    licence: str
    """The licence of the file."""


Tensor = Random | Values | FromVectors


@dataclass(frozen=True, kw_only=True)
class Case(metaclass=_KeepsMistakes):
    """One set of inputs, by the names in the declaration. `name` is unique within the operator.

    An optional input may be left out or None; a variadic one takes a tuple of tensors.

    Example:
        >>> plain = Case(name="plain", inputs={"x": Random(shape=(2, 3))})
        >>> several = Case(name="several", inputs={"xs": (Random(shape=(2,)), Random(shape=(5,)))})
    """

    name: str
    """Letters, digits and _; unique within the operator."""
    inputs: Mapping[str, Tensor | tuple[Tensor, ...] | None]
    """A tensor for each input; None or no entry for an absent input, a tuple for a variadic one."""
    expected: Vectors | None = None
    """Outputs of a third implementation, apart from reference and kernel; inputs are `FromVectors` or `Values`."""


@dataclass(frozen=True, kw_only=True)
class Model(metaclass=_KeepsMistakes):
    """One exported model and the cases that run through it. The exporter traces its first case.

    `types` binds each type variable. `dynamic` names the dynamic axes of each input (None: static); the same name means
    the same size. Without it, every case has the shapes of the first. `names` renames inputs and outputs in the model's
    graph. `unsupported` is the reason why the model cannot run: if it runs anyway, verification fails. `min_opset`
    is the same for the opsets below it, for one lowering: ``{"decomposed": 13}``.

    `absent` names optional outputs that the node leaves out: the model does not have them.

    `around` adds nodes around the operator: a function of the operator and its inputs that calls the operator once,
    ``def plus_x(op, x): return op(x) + x``, for NumPy arrays and for torch tensors. Outputs keep the declared names,
    dtypes and shapes.

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
    """Values of attributes; the others have their default."""
    dynamic: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    """One name for each axis of an input: ``{"x": ("N", None)}``; None: static."""
    domain_version: int = 1
    """The domain version that it imports: one of `OnnxOp.versions`."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of inputs and outputs in the graph that differ from the declared ones."""
    absent: tuple[str, ...] = ()
    """Optional outputs that its node leaves out."""
    unsupported: str = ""
    """Why it cannot run; empty: it can."""
    min_opset: Mapping[Lowering, int] = field(default_factory=dict)
    """The first opset at which a lowering supports it, where that is above the operator's. Below, `g.unsupported()`
    gives the reason."""
    around: Callable[..., Any] | None = None
    """A function ``(op, *inputs)`` that calls the operator once; None: only the operator."""
    cases: tuple[Case, ...]
    """At least one; the first is traced."""


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape of a described tensor; of a ragged `Values`, the shape along its first elements."""
    if not isinstance(tensor, Values):
        return tensor.shape
    shape: list[int] = []
    values: Nested = tensor.values
    while isinstance(values, tuple):
        shape.append(len(values))
        if not values:
            break
        values = values[0]
    return tuple(shape)


def tensors_of(case: Case, name: str) -> tuple[Tensor, ...]:
    """Return the tensors that a case gives for an input: none for an absent one, several for a variadic one."""
    found = case.inputs.get(name)
    if found is None:
        return ()
    return found if isinstance(found, tuple) else (found,)


def as_data(value: object) -> Any:
    """Return `value` as JSON data, field by field: cache keys of steps contain parts of a declaration in this form."""
    if isinstance(value, str | int | None):  # the most frequent types; every doit command calls this
        return value
    if fields := getattr(type(value), "__dataclass_fields__", None):
        return {"": type(value).__name__} | {name: as_data(getattr(value, name)) for name in fields}
    if isinstance(value, Mapping):
        return {str(k): as_data(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [as_data(v) for v in value]
    if isinstance(value, FunctionType | CodeType):  # by its code, so that a move to another line changes nothing
        code = value.__code__ if isinstance(value, FunctionType) else value
        return as_data((code.co_name, code.co_code.hex(), code.co_names, code.co_varnames, code.co_consts))
    return repr(value) if isinstance(value, float) else value  # JSON has no NaN and no infinities
