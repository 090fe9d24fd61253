"""Explain why ONNX Runtime refuses a standard node: an implementation that it lacks, or dtypes that do not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnxruntime
from onnx import ModelProto, NodeProto, TypeProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from opmatrix.declaration.torch_signature import ONNX_DOMAINS
from opmatrix.errors import one_line
from opmatrix.model_check.graph_walk import domain_of, node_label, nodes, opsets
from opmatrix.model_check.import_faults import onnx_schemas
from opmatrix.model_check.inline_functions import function_name
from opmatrix.model_check.type_text import format_type

# A version after which ONNX Runtime's table of kernels has no end.
_LAST = 2**30
_MISSING = (
    r"(?:Could not find an implementation|Failed to find kernel) for (\w+)\((\d+)\)(?: node with name '([^']*)')?"
)
_UNKNOWN = r"(\w+)\(-?\d+\) is not a registered function/op|No Op registered for (\w+) with domain_version"
_BOUND = (
    r"Type parameter \((\w+)\) of Optype \((\w+)\) bound to different types "
    r"\(tensor\((\w+)\) and tensor\((\w+)\) in node \(([^)]*)\)"
)
_TYPE = r"Type '([^']+)' of input parameter \(([^)]*)\) of operator \((\w+)\) in node \(([^)]*)\) is invalid"
_INTERFACE = r"No corresponding Numpy type for Tensor Type\. (\w+)|Numpy_type \d+ can't be converted to MLDataType"
_IMPORT = r"No opset import for domain '([^']*)'"
_LOCALE = r"Failed to construct locale with name:([\w.-]+)"
_UNSUPPORTED = r"(?i)[^.:]*\b(?:not|un)\s?(?:yet |currently )?(?:supported|implemented)\b[^.]*"
_ELSEWHERE = "The model may be right. Replace the node by others, or run the model in another runtime"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """`missing`: the model is valid, and ONNX Runtime does not implement a node of it."""

    text: str
    remedy: str = ""
    missing: bool = False


def explain(model: ModelProto, error: str) -> Refusal | None:
    """Return the explanation of an error about a node in one of ONNX's domains; None for any other error."""
    version = f"ONNX Runtime {onnxruntime.__version__}"
    if found := re.search(_MISSING, error):
        return _missing(model, found[1], int(found[2]), found[3] or "", version)
    if found := re.search(_UNKNOWN, error):
        return _unknown(model, found[1] or found[2], version)
    if (found := re.search(_BOUND, error)) and (node := _node(model, found[2], found[5])):
        text = f"the inputs of {node_label(node)} must have one dtype, and have {found[3]} and {found[4]}"
        return Refusal(text=text, remedy="Cast one of them in the model")
    if (found := re.search(_TYPE, error)) and (node := _node(model, found[3], found[4])):
        text = f"{node_label(node)} takes no {found[1]} as {found[2]!r} in opset {opsets(model).get('', 0)}"
        return Refusal(text=text, remedy="Cast it in the model, or export at a newer opset")
    if found := re.search(_INTERFACE, error):
        dtype = f"the dtype {found[1]}" if found[1] else "the dtype of an input"
        return Refusal(text=f"the Python interface of {version} does not have {dtype}", missing=True)
    if "codec can't decode byte" in error:
        text = f"{version} computes a string that is not UTF-8, which its Python interface does not return"
        return Refusal(text=text, remedy="Its interfaces for C and C++ do", missing=True)
    if (found := re.search(_IMPORT, error)) and (by := [f for f in model.functions if found[1] in opsets(f)]):
        text = f"{version} wants the model to import {found[1]!r}, which its function {function_name(by[0])} imports"
        imported = f"add it to the imports of the model, too: version {opsets(by[0])[found[1]]}"
        return Refusal(text=text, remedy=f"The model may be right. For ONNX Runtime, {imported}", missing=True)
    if found := re.search(_LOCALE, error):
        text = f"this machine has no locale {found[1]}, which a StringNormalizer needs"
        return Refusal(text=text, remedy=f"Install it, such as with: locale-gen {found[1]}", missing=True)
    if "onnxruntime::" in error and (found := re.search(_UNSUPPORTED, error)):  # not of a custom kernel
        return Refusal(text=f"{version}: {one_line(found[0])}", remedy=_ELSEWHERE, missing=True)
    return None


def failing_node(model: ModelProto, error: str) -> str:
    """Return the label of the node at which a run fails, "" where the error does not tell it among several."""
    if not (found := re.search(r"while running (\w+) node\. Name:'([^']*)'", error)):
        return ""
    same = [node for node in nodes(model) if node.op_type == found[1]]
    named = [node for node in same if node.name and node.name == found[2]] or same
    return node_label(named[0]) if len(named) == 1 else ""


def _unknown(model: ModelProto, op_type: str, version: str) -> Refusal | None:
    node = _node(model, op_type, "")
    if node is None:
        return None
    history = onnx_schemas().get((domain_of(node), op_type))
    imported = opsets(model).get(domain_of(node), 0)
    if not history or min(history) > imported:
        return Refusal(
            text=f"ONNX has no {op_type} in version {imported} of {node.domain or 'ai.onnx'}: {node_label(node)}",
            remedy="Is the op type right, and the opset that the model imports?",
        )
    text = f"{version} does not implement {node_label(node)}, an operator of {node.domain or 'ai.onnx'}"
    return Refusal(text=text, remedy=_ELSEWHERE, missing=True)


def _node(model: ModelProto, op_type: str, name: str) -> NodeProto | None:
    """Return a node of ONNX's domains by its op type and its name, which ONNX Runtime may change."""
    found = [node for node in nodes(model) if node.op_type == op_type and node.domain in ONNX_DOMAINS]
    named = [node for node in found if node.name == name]
    return next(iter(named or found), None)


def _missing(model: ModelProto, op_type: str, since: int, name: str, version: str) -> Refusal | None:
    """Return the explanation of a missing kernel, or None for a node in a domain that is not of ONNX's."""
    node = _node(model, op_type, name)
    if node is None and any(n.op_type == op_type for n in nodes(model)):
        return None
    domain = domain_of(node) if node else ""
    kernels = [
        kernel
        for kernel in _state.get_all_opkernel_def()
        if (kernel.domain, kernel.op_name, kernel.provider) == (domain, op_type, "CPUExecutionProvider")
    ]
    inner = f"{op_type}, of which ONNX or ONNX Runtime makes another node of the model"
    label = f"{node_label(node) if node else inner}, version {since} of {op_type}"
    if not kernels:
        return Refusal(
            text=f"{version} does not implement {op_type} on the CPU: {label}",
            remedy=_ELSEWHERE,
            missing=True,
        )
    of_version = [k for k in kernels if k.version_range[0] <= since <= k.version_range[1]]
    if not of_version:
        versions = ", ".join(sorted({_versions(*k.version_range) for k in kernels}))
        return Refusal(
            text=f"{version} does not implement {label}; it has: {versions}",
            remedy="The model may be right. Export at an opset with one of these versions, or use a newer ONNX Runtime",
            missing=True,
        )
    takes = _constraints([k.type_constraints for k in of_version])
    given = _types(node, model) if node else ""
    return Refusal(
        text=f"{version} does not implement {label} for these dtypes{f' ({given})' if given else ''}; it has: {takes}",
        remedy="The model may be right. Cast the inputs in the model to such a dtype, or run it in another runtime",
        missing=True,
    )


def _versions(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} and newer" if last >= _LAST else f"{first} to {last}"


def _constraints(kernels: Sequence[Mapping[str, Sequence[str]]]) -> str:
    """Return the dtypes of each type variable; ONNX Runtime lists most kernels once per dtype."""
    found: dict[str, set[str]] = {}
    for kernel in kernels:
        for name, types in kernel.items():
            found.setdefault(name, set()).update(t.removeprefix("tensor(").removesuffix(")") for t in types)
    return ", ".join(f"{name} {' '.join(sorted(types))}" for name, types in sorted(found.items()))


def _types(node: NodeProto, model: ModelProto) -> str:
    """Return the types of a node's inputs, as far as onnx infers them."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # the checks of types report why
        return ""
    known: dict[str, TypeProto] = {v.name: v.type for v in (*inferred.input, *inferred.value_info, *inferred.output)}
    known |= {i.name: helper.make_tensor_type_proto(i.data_type, i.dims) for i in model.graph.initializer}
    return one_line(", ".join(f"{name} {format_type(known[name])}" for name in node.input if name in known))
