"""The classes of `ops/<name>/bench.py`: the rows that `doit bench` times, and the peers of the operator.

Like the classes of `opmatrix.spec` they are frozen data. Only `doit bench` reads bench.py, which may import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from opmatrix.spec import AttributeValue, DType, Nested, Tensor, _KeepsMistakes  # noqa: F401 - Nested is in hints

Convert = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Row(metaclass=_KeepsMistakes):
    """One set of inputs and attributes that is timed.

    Example:
        >>> row = Row(name="2x3", types={"T": "float32"}, inputs={"x": Random(shape=(2, 3))}, attributes={"scale": 0.5})
    """

    name: str
    """Letters, digits, ``_``, ``.`` and ``-``; unique within the operator."""
    types: Mapping[str, DType] = field(default_factory=dict)
    """A dtype for each name of `OpSpec.types`."""
    inputs: Mapping[str, Tensor | tuple[Tensor, ...] | None]
    """A tensor for each input, as in a `Case`."""
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    """Values of attributes; the others have their default."""
    no_truth: str = ""
    """Why the errors of this row are not measured, such as ``"the reference takes 7 GB"``. Empty: they are measured."""


@dataclass(frozen=True, kw_only=True)
class Function(metaclass=_KeepsMistakes):
    """A peer that is a Python function: a torch expression, or any function of NumPy arrays.

    It takes the inputs in the declared order, and the attributes by their names; `inputs` converts these once, before
    the timing, to the tuple of its arguments. `outputs` converts its result, for the comparison with the truth, to a
    dict from the operator's outputs to arrays or tensors; without it the results are those of the operator, in order.

    Example:
        >>> clamp = Function(name="torch", function="torch:relu", inputs=lambda x, scale: (x,))
    """

    name: str
    """How the table names it."""
    function: Callable[..., Any] | str
    """The function, or ``"module:function"``, which is imported when it is timed."""
    takes: Literal["torch", "numpy"] = "torch"
    """Tensors of torch, or arrays of NumPy."""
    compile: bool = True
    """Whether torch.compile of it is timed too, if it takes tensors of torch."""
    inputs: Convert | None = None
    """A function of the inputs and attributes, all by name."""
    outputs: Convert | None = None
    """A function of what the peer returns."""
    dtypes: tuple[DType, ...] = ()
    """The dtypes of the rows in which it takes part; empty: all."""
    rows: tuple[str, ...] = ()
    """The rows in which it takes part; empty: all."""


@dataclass(frozen=True, kw_only=True)
class OnnxModel(metaclass=_KeepsMistakes):
    """A peer that is an ONNX graph in a file, run by ONNX Runtime.

    `inputs` returns its inputs, a dict by name or a tuple in order; without it they are those of the operator, in the
    declared order.

    Example:
        >>> exported = OnnxModel(name="exported", path="peers/relu.onnx")
    """

    name: str
    """How the table names it."""
    path: str
    """The file, below ops/<name>/."""
    library: str = ""
    """A custom-op library of ONNX Runtime that it needs: a path from the project's root; empty: none."""
    inputs: Convert | None = None
    """A function of the inputs and attributes, all by name, which gets and returns arrays of NumPy."""
    outputs: Convert | None = None
    """A function of the list of its outputs, as in `Function`."""
    dtypes: tuple[DType, ...] = ()
    """As in `Function`."""
    rows: tuple[str, ...] = ()
    """As in `Function`."""


@dataclass(frozen=True, kw_only=True)
class OnnxNode(metaclass=_KeepsMistakes):
    """A peer that is one node: an operator of ONNX, of ONNX Runtime, or of a custom-op library.

    Example:
        >>> relu = OnnxNode(name="Relu", op_type="Relu", opset=14, inputs=lambda x, scale: (x,))
        >>> other = OnnxNode(name="other", op_type="Relu6", domain="others", library="third_party/libothers.so")
    """

    name: str
    """How the table names it."""
    op_type: str
    """The op type of the node."""
    domain: str = ""
    """Its domain; empty: that of ONNX."""
    opset: int = 18
    """The opset of ONNX that the model imports."""
    version: int = 1
    """The version of `domain` that the model imports, if that is not ONNX's."""
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    """The attributes of the node."""
    results: int = 1
    """How many outputs the node has."""
    library: str = ""
    """As in `OnnxModel`."""
    inputs: Convert | None = None
    """As in `OnnxModel`."""
    outputs: Convert | None = None
    """As in `OnnxModel`."""
    dtypes: tuple[DType, ...] = ()
    """As in `Function`."""
    rows: tuple[str, ...] = ()
    """As in `Function`."""


Peer = Function | OnnxModel | OnnxNode


@dataclass(frozen=True, kw_only=True)
class Bench(metaclass=_KeepsMistakes):
    """What `doit bench` times of an operator: the value of BENCH in ops/<name>/bench.py.

    `bytes` and `flops` are an expression of sizes as in `opmatrix.spec.Dims`, or a function of the shapes of the inputs
    and the attributes, all by name.

    Example:
        >>> bench = Bench(
        ...     rows=tuple(
        ...         Row(name=f"{n}_{dtype}", types={"T": dtype}, inputs={"x": Random(shape=(n,))})
        ...         for n in (1024, 1048576)
        ...         for dtype in ("float32", "float64")
        ...     ),
        ...     peers=(Function(name="torch", function="torch:relu"),),
        ...     flops="2*N",
        ... )
    """

    rows: tuple[Row, ...]
    """At least one."""
    peers: tuple[Peer, ...] = ()
    """What the operator is compared with, besides its decomposed lowering and a reference in torch."""
    bytes: str | Callable[..., float] | None = None
    """How many bytes a row moves. None: those of its inputs and outputs."""
    flops: str | Callable[..., float] | None = None
    """How many floating-point operations a row does. None: unknown."""
