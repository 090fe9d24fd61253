"""docs/reference/dtypes.md: the table of opmatrix.project.dtypes."""

from __future__ import annotations

from collections.abc import Iterable

from opmatrix.declaration.validation.fields import WHY_NO_DTYPE
from opmatrix.project.cells import ORT, TORCH
from opmatrix.project.dtypes import NAMES, SINCE

_BEGIN = """# Dtypes

Which torch, exporter and ONNX Runtime supports which dtype. Each entry is the first version of the
[matrix](../matrix.md) that does. All later ones of the matrix do as well. `-` means none of them.

`./run doit probe torch=made ort=made` measures the table on the installed versions, and fails on any difference. It
is in [`pipeline/opmatrix/project/dtypes.py`](../../pipeline/opmatrix/project/dtypes.py).

"""
_COLUMNS = """
- **torch, classic binding**: an operator in C++, compiled over the C++ headers of this torch as a generated binding is,
  takes a tensor of it and returns a copy.
- **torch, stable ABI**: the same operator, compiled over the stable ABI. opmatrix uses this ABI from torch 2.9 on.
- **legacy exporter, dynamo exporter**: a model of a custom node, at opset 17 and 18, has an input and an output of it.
- **node model**: ONNX Runtime loads a model of one custom node that has an input of it. For bfloat16, float8,
  int4 and uint4, which its Python interface does not take, also with
  [nodes that cast](../how-to/another-dtype.md#float8) at the edges.
- **ONNX Runtime**: one custom op makes a tensor of it, and another one takes it and finds the same bytes.

An operator with a torch side has int4 and uint4
[in the node alone](../how-to/another-dtype.md#int4-in-the-node-int8-in-torch): they are int8 and uint8 in torch, and
the dynamo exporter of torch 2.6 and newer writes casts, which ONNX Runtime 1.24 and newer run.

Where the torch, the exporter or the ONNX Runtime of a cell does not support a dtype of a model, the cases of that model
are `unsupported`, with this reason.

"""


def render() -> str:
    """Return the text of the page."""
    versions = f"torch {', '.join(TORCH)}; ONNX Runtime {', '.join(ORT)}."
    head = [["dtype", *NAMES.values()], ["---"] * (len(NAMES) + 1)]
    known, refused = ([_row(d) for d in SINCE if (d in WHY_NO_DTYPE) == is_refused] for is_refused in (False, True))
    reasons = "".join(f"- {dtype}, {why}.\n" for dtype, why in WHY_NO_DTYPE.items())
    return (
        f"{_BEGIN}Versions: {versions}\n\n{_table([*head, *known])}{_COLUMNS}## Dtypes that a declaration rejects\n\n"
        f"{_table([*head, *refused])}\n{reasons}"
    )


def _row(dtype: str) -> list[str]:
    return [dtype, *(SINCE[dtype].get(column, "-") for column in NAMES)]


def _table(rows: Iterable[Iterable[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
