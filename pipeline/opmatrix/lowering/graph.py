"""The notation of a lowering, `Graph`, and the checks on each node that it emits. Needs onnx alone.

A lowering is a function ``name(g, input, ..., attribute, ...)`` that emits nodes and returns the outputs. It takes the
arguments of the torch schema in order: a tensor as a Value, an absent one as None, several as a list, and everything
else as a Python constant, floats rounded to float32. It is straight-line code: no If, no Loop, no sequences.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import NodeProto, defs

from opmatrix.basics.errors import ExportError, did_you_mean
from opmatrix.spec import DType

Value = Any
"""A tensor of the graph under construction, of a type that the exporter chooses."""

# The suffix of an attribute, the name of its type in ONNX, and the function that converts one value to it.
_LETTERS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "f": ("FLOAT", float), "i": ("INT", int), "s": ("STRING", str), "t": ("TENSOR", np.asarray),
}  # fmt: skip

STANDARD = ("", "ai.onnx")
"""The two spellings of ONNX's own domain."""


class UnsupportedModel(ExportError):  # noqa: N818 - not an error: a lowering may support only a part of the cases
    """A lowering called `Graph.unsupported`; the message is its reason."""


class Graph(ABC):
    """Emits the nodes of a lowering. `opset` is the requested one, in both exporters.

    Example:
        >>> def decomposed(g, x, slope):
        ...     if g.opset >= 16:
        ...         return g.op("LeakyRelu", x, alpha_f=slope)
        ...     return g.op("Max", x, g.op("Mul", x, g.constant(slope, g.dtype(x))))
        >>> decomposed(g, x, 0.1).name
        'v0_0'
        >>> [node.op_type for node in g.nodes]
        ['LeakyRelu']
    """

    def __init__(self, opset: int, versions: Mapping[str, int]) -> None:
        """`versions` are those of the custom domains."""
        self.opset = opset
        self._versions = versions

    @abstractmethod
    def op(self, name: str, *inputs: Value | None, outputs: int = 1, **attributes: Any) -> Any:
        """Emit ``Name`` or ``domain::Name``; return its output, or a tuple of several.

        The suffix of an attribute is its type, for a list too: ``alpha_f=``, ``axes_i=``, ``mode_s=`` or ``value_t=``.
        One that is None is left out.

        Example:
            >>> y = g.op("Relu", x)
            >>> z = g.op("my_domain::ScaledRelu", y, scale_f=0.5)
            >>> values, indices = g.op("TopK", x, g.constant([1], "int64"), outputs=2, axis_i=1)
        """

    def version(self, domain: str) -> int:
        """Return the version of a custom domain that the model imports; it decides which attributes a node may have.

        Example:
            >>> g.version("my_domain")
            1
        """
        return self._versions.get(domain, 1)

    @abstractmethod
    def constant(self, value: ArrayLike, dtype: DType) -> Value:
        """Emit a constant tensor of `dtype`.

        Example:
            >>> y = g.op("Mul", x, g.constant(0.5, g.dtype(x)))
        """

    @abstractmethod
    def dtype(self, value: Value) -> DType:
        """Return the dtype of one of the operator's own inputs.

        Example:
            >>> g.dtype(x)
            'float32'
        """

    @abstractmethod
    def rank(self, value: Value) -> int:
        """Return the number of axes of one of the operator's own inputs.

        Example:
            >>> g.rank(x)
            2
        """

    def dim(self, value: Value, axis: int) -> int | Value:
        """Return a size of one of the operator's own inputs: an int where static, else a Value of one element.

        Example:
            >>> g.dim(x, 1)
            3
            >>> columns = g.op("Reshape", x, g.op("Concat", g.dim(x, 0), g.constant([3, 1], "int64"), axis_i=0))
        """
        if (size := self._size(value, axis)) is not None:
            return size
        return self.op("Gather", self.op("Shape", value), self.constant([axis], "int64"), axis_i=0)

    def unsupported(self, reason: str) -> NoReturn:
        """Stop the export: the lowering does not support this case.

        Example:
            >>> if g.opset < 11:
            ...     g.unsupported("Clip takes its limits as inputs since opset 11")
        """
        raise UnsupportedModel(reason)

    @abstractmethod
    def _size(self, value: Value, axis: int) -> int | None:
        """Return a size of one of the operator's own inputs, None if dynamic."""

    def _node(
        self, name: str, inputs: int, attributes: Mapping[str, Any]
    ) -> tuple[str, str, int, tuple[NodeAttribute, ...]]:
        """Return domain, op type, version of its schema, and attributes. Raises ExportError for an invalid node."""
        domain, op_type = split(name)
        written = node_attributes(attributes)
        if domain:
            return domain, op_type, self.version(domain), written
        return domain, op_type, since_version(op_type, opset=self.opset, inputs=inputs, attributes=written), written


@dataclass(frozen=True, kw_only=True)
class NodeAttribute:
    """One attribute of a node: `letter` is its type (f, i, s, t), `value` a single value or a list."""

    name: str
    letter: str
    value: Any

    @property
    def type(self) -> str:
        """The name of its type in ONNX: "INT", or "INTS" for a list."""
        return _LETTERS[self.letter][0] + "S" * isinstance(self.value, list)


def node_attributes(keywords: Mapping[str, Any]) -> tuple[NodeAttribute, ...]:
    """Convert the keyword arguments of `Graph.op`. Raises ExportError for an attribute without a suffix."""
    found = []
    for key, value in keywords.items():
        name, _, letter = key.rpartition("_")
        if not name or letter not in _LETTERS:
            raise ExportError(f"attribute {key!r}: write its type as a suffix: {key}_f, {key}_i, {key}_s or {key}_t")
        if value is None:
            continue
        _, convert = _LETTERS[letter]
        many = isinstance(value, list | tuple) and letter != "t"
        converted = list(map(convert, value)) if many else convert(value)
        found.append(NodeAttribute(name=name, letter=letter, value=converted))
    return tuple(found)


def split(name: str) -> tuple[str, str]:
    """Return domain and op type of ``domain::Name``; ONNX's own domain is "". Raises ExportError if invalid."""
    if not re.fullmatch(r"(?:[\w.\-]+::)?[^\W\d]\w*", name):
        raise ExportError(f"{name!r} is not a name of an operator; write 'Name' or 'domain::Name'")
    domain, _, op_type = name.rpartition("::")
    return domain, op_type


def qualified(node: NodeProto) -> str:
    """Return ``domain::Name``, or ``Name`` for one of ONNX's own operators."""
    return node.op_type if node.domain in STANDARD else f"{node.domain}::{node.op_type}"


def since_version(op_type: str, *, opset: int, inputs: int, attributes: Sequence[NodeAttribute]) -> int:
    """Return the since version of one of ONNX's own operators at `opset`.

    Raises ExportError if `opset` does not have the operator, or has it with other inputs or attributes.
    """
    try:
        schema = defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError as error:
        known = {s.name: s.since_version for s in defs.get_all_schemas_with_history() if not s.domain}
        versions = [s.since_version for s in defs.get_all_schemas_with_history() if (s.domain, s.name) == ("", op_type)]
        why = f"it begins at opset {min(versions)}" if versions else f"no opset has it{did_you_mean(op_type, known)}"
        raise ExportError(f"the lowering emits {op_type} at opset {opset}, but {why}. Branch on g.opset") from error
    where = f"{op_type} at opset {opset} (since version {schema.since_version})"
    for attribute in attributes:
        if attribute.name not in schema.attributes:
            has = ", ".join(sorted(schema.attributes)) or "none"
            raise ExportError(f"{where} has no attribute {attribute.name!r}, it has: {has}. Branch on g.opset")
    if not schema.min_input <= inputs <= schema.max_input:
        raise ExportError(
            f"{where} takes {schema.min_input} to {schema.max_input} inputs, the lowering gives {inputs}. "
            f"Branch on g.opset"
        )
    return int(schema.since_version)
