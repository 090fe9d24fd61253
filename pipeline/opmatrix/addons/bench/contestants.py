"""What a row times: the operator in torch and in ONNX Runtime, and its peers, each as a function without arguments.
What a call does not repeat is done before: inputs are converted and bound, graphs are compiled. Tensors and sessions
read the same memory. Each call allocates its outputs, as for a user."""

from __future__ import annotations

import ctypes
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from opmatrix.addons.bench.forked import Side
from opmatrix.addons.bench.read import OWN, model_of
from opmatrix.basics.errors import ExportError, OpmatrixError, one_line
from opmatrix.basics.files import load_module
from opmatrix.basics.version import minor
from opmatrix.bench.spec import Bench, Function, OnnxModel, OnnxNode, Peer, Row
from opmatrix.data.arrays import Array, numpy_dtype
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import case_arguments, graph_inputs, graph_outputs
from opmatrix.export.generated_modules import generated_module, load_generated, lowered_nodes
from opmatrix.export.signature import ExpectedModel, one_node, value_info
from opmatrix.ort_checks.sessions import ORT_ERRORS, explain
from opmatrix.project.cells import Cell, ir_version
from opmatrix.project.dtypes import FOUR_BITS
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import attribute_values, has_ort_library, written_schema
from opmatrix.signature.versions import version_at
from opmatrix.spec import Lowering, Model, OpSpec
from opmatrix.torch_ops import load
from opmatrix.torch_ops.call import with_attributes
from opmatrix.torch_ops.case_tensors import arguments, as_array, as_tensor, strided

OPSET = 18
"""The opset of the models of rows, if the operator does not need a newer one."""


def row_model(paths: Paths, spec: OpSpec, model: Model, lowering: Lowering, *, ort: str) -> ModelProto:
    """Return the model of a row with the nodes of a lowering. Raises ExportError, with the reason for a lowering that
    does not support the row."""
    opset = max(OPSET, spec.min_opset, model.min_opset.get(lowering, 0))
    expected = ExpectedModel(
        spec=spec,
        model=model,
        lowering=lowering,
        cell=Cell(torch=None, exporter="node", opset=opset, ort=ort),
        # Of an operator of ONNX alone, this is the only module.
        schema=generated_module(paths, spec.name, "schema").schema(version_at(spec, model.domain_version)),
    )
    if lowering == "custom" and not spec.uses:
        return one_node(expected)
    generated = load_generated(paths, spec.name)
    expected = replace(expected, used_schemas=generated.used_schemas(model))
    try:
        nodes = lowered_nodes(expected, generated)
    except ExportError as error:
        raise ExportError(str(error).removeprefix(f"{expected}: ")) from error
    signature = expected.signature
    inputs, outputs = (
        [value_info(v.name, numpy_dtype(v.dtype), v.shape) for v in values]
        for values in (signature.inputs, signature.outputs)
    )
    return _model(nodes, inputs, outputs, opset=opset, versions=expected.versions)


def peer_model(peer: OnnxNode, arrays: Sequence[Array]) -> ModelProto:
    """Return the model of a peer's node with inputs of these dtypes; ONNX Runtime infers the types of its outputs."""
    names, results = [f"input_{n}" for n in range(len(arrays))], [f"output_{n}" for n in range(peer.results)]
    node = helper.make_node(peer.op_type, names, results, domain=peer.domain or None)
    for attribute, value in peer.attributes.items():
        node.attribute.append(helper.make_attribute(attribute, value))
    inputs = [value_info(name, array.dtype, array.shape) for name, array in zip(names, arrays, strict=True)]
    outputs = [helper.make_empty_tensor_value_info(name) for name in results]
    versions = {peer.domain: peer.version} if peer.domain else {}
    return _model([node], inputs, outputs, opset=peer.opset, versions=versions)


def _model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    *,
    opset: int,
    versions: Mapping[str, int],
) -> ModelProto:
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in versions.items())]
    return helper.make_model(
        helper.make_graph(list(nodes), "row", list(inputs), list(outputs)),
        opset_imports=imports,
        ir_version=ir_version("node", opset),
        producer_name="opmatrix",
    )


Outputs = Mapping[str, Array]
TORCH, ORT, DECOMPOSED, REFERENCE, COMPILED = OWN

NO_COMPILE = "left out by --no-compile"


class Contestant(NamedTuple):
    """A call that is timed, and what converts what it returns to outputs of the operator by name; some may be
    missing."""

    call: Callable[[], Any]
    outputs: Callable[[Any], Outputs]


class Entrant(NamedTuple):
    """What prepares a contestant, or raises SkippedError. `side`: the library of the operator that it is compared with,
    unless it is `ours`."""

    name: str
    side: Side
    make: Callable[[], Contestant]
    ours: bool = False


class SkippedError(Exception):
    """A contestant does not take part in a row; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class Entrants:
    """All that may be timed in a row, in the project at `paths`; `compile`: also torch.compile."""

    paths: Paths
    operator: Operator
    bench: Bench
    row: Row
    arrays: Sequence[Array]
    threads: int
    compile: bool = True

    @cached_property
    def model(self) -> Any:
        return model_of(self.row)

    @cached_property
    def _values(self) -> Mapping[str, Any]:
        return attribute_values(self.operator.spec, self.model)

    def all(self) -> Iterator[Entrant]:
        """Yield the operator's own libraries, and then what they are compared with."""
        spec = self.operator.spec
        if spec.torch:
            yield Entrant(TORCH, "torch", self._torch_library, ours=True)
        if has_ort_library(spec):
            yield Entrant(ORT, "onnxruntime", partial(self._lowering, "custom"), ours=True)
        if "decomposed" in spec.lowerings:
            yield Entrant(DECOMPOSED, "onnxruntime", partial(self._lowering, "decomposed"))
        if spec.reference == "torch":
            yield Entrant(REFERENCE, "torch", partial(self._reference, compiled=False))
            yield Entrant(COMPILED, "torch", partial(self._reference, compiled=True))
        for peer in self.bench.peers:
            if isinstance(peer, Function):
                yield Entrant(peer.name, "torch", partial(self._function, peer, compiled=False))
                if peer.takes == "torch" and peer.compile:
                    yield Entrant(f"{peer.name} compiled", "torch", partial(self._function, peer, compiled=True))
            else:
                yield Entrant(peer.name, "onnxruntime", partial(self._onnx, peer))

    # Each of the following prepares one contestant.

    def _torch_library(self) -> Contestant:
        spec, case = self.operator.spec, self.model.cases[0]
        if not spec.torch or spec.torch.overrides:
            raise SkippedError("torch has its own operator, which opmatrix does not build")
        try:
            loaded = load.load(self.paths, self.operator)
        except OpmatrixError as error:
            raise SkippedError(one_line(error)) from error
        own_copy = written_schema(spec) is not None  # it may write arguments, whose values then drift from call to call
        flat = [
            strided(array, item.tensor.layout) if own_copy or item.tensor.layout != "contiguous" else as_tensor(array)
            for item, array in zip(graph_inputs(spec, self.model, case), self.arrays, strict=True)
        ]
        function = with_attributes(loaded.overload, spec, self.model)
        call = partial(function, *arguments(spec, case, flat))
        alive = loaded  # as long as the call
        return Contestant(call, lambda results: self._in_order(results, alive))

    def _in_order(self, results: Any, _: object = None) -> Outputs:
        """Return the results of a function, which are the operator's outputs in order."""
        values = results if isinstance(results, tuple | list) else (results,)
        names = (part.name for part in self.operator.spec.outputs)
        return {name: _array(value) for name, value in zip(names, values, strict=False) if value is not None}

    def _lowering(self, lowering: Lowering) -> Contestant:
        spec = self.operator.spec
        try:
            model = row_model(self.paths, spec, self.model, lowering, ort=minor(ort.__version__))
        except ExportError as error:
            raise SkippedError(one_line(error)) from error
        libraries = [self.paths.ort_library(spec.name)] if lowering == "custom" else []
        session = self._session(model.SerializeToString(), libraries)
        feeds = {
            f.name: a for f, a in zip(graph_inputs(spec, self.model, self.model.cases[0]), self.arrays, strict=True)
        }
        names = [part.name for part in graph_outputs(spec, self.model)]
        return Contestant(bound(session, feeds), lambda binding: dict(zip(names, read(binding), strict=True)))

    def _session(self, model: bytes, libraries: Sequence[Path]) -> ort.InferenceSession:
        """Return a session on `threads` threads. Its threads stop spinning when a call ends, so that they do not
        disturb the next contestant."""
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.add_session_config_entry("session.force_spinning_stop", "1")
        options.log_severity_level = 4
        try:
            for library in libraries:
                options.register_custom_ops_library(str(library))
            return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except ORT_ERRORS as error:
            raise SkippedError(one_line(explain(str(error)))) from error

    def _reference(self, *, compiled: bool) -> Contestant:
        spec = self.operator.spec
        function = getattr(load_module(self.paths.reference(spec.name), "reference"), spec.name)
        given = arguments(spec, self.model.cases[0], [as_tensor(array) for array in self.arrays])
        return Contestant(partial(self._compiled(function, compiled), *given, **self._values), self._in_order)

    def _function(self, peer: Function, *, compiled: bool) -> Contestant:
        self._require(peer)
        function = _imported(peer.function) if isinstance(peer.function, str) else peer.function
        given = [as_tensor(a) if peer.takes == "torch" else a for a in self.arrays]
        fed = [*case_arguments(self.operator.spec, self.model.cases[0], given)]
        attributes: Mapping[str, Any] = self._values
        if peer.inputs:
            converted = peer.inputs(**self._by_name(fed), **attributes)
            fed, attributes = list(converted if isinstance(converted, tuple) else (converted,)), {}
        return Contestant(
            partial(self._compiled(function, compiled), *fed, **attributes), self._converted(peer.outputs)
        )

    def _compiled(self, function: Callable[..., Any], compiled: bool) -> Callable[..., Any]:
        if compiled and not self.compile:
            raise SkippedError(NO_COMPILE)
        return torch.compile(function) if compiled else function

    def _onnx(self, peer: OnnxModel | OnnxNode) -> Contestant:
        self._require(peer)
        spec = self.operator.spec
        fed: Any = list(self.arrays)
        if peer.inputs:
            fed = peer.inputs(
                **self._by_name([*case_arguments(spec, self.model.cases[0], self.arrays)]), **self._values
            )
            fed = fed if isinstance(fed, Mapping | tuple | list) else (fed,)
        arrays = [np.asarray(array, order="C") for array in (fed.values() if isinstance(fed, Mapping) else fed)]
        libraries = [self.paths.root / peer.library] if peer.library else []
        for library in libraries:
            if not library.is_file():
                raise SkippedError(f"no library {peer.library!r} in the project")
        if isinstance(peer, OnnxNode):
            model = peer_model(peer, arrays)
        else:
            model = onnx.load_model(self.paths.op(spec.name) / peer.path)
        session = self._session(model.SerializeToString(), libraries)
        names = [*fed] if isinstance(fed, Mapping) else [value.name for value in session.get_inputs()]
        convert = self._converted(peer.outputs)
        call = bound(session, dict(zip(names, arrays, strict=False)))
        return Contestant(call, lambda binding: convert(read(binding)))

    def _by_name(self, fed: Sequence[Any]) -> dict[str, Any]:
        return {part.name: value for part, value in zip(self.operator.spec.inputs, fed, strict=True)}

    def _require(self, peer: Peer) -> None:
        if peer.rows and self.row.name not in peer.rows:
            raise SkippedError("bench.py leaves it out of this row")
        if peer.dtypes and not {*peer.dtypes} & {*self.row.types.values()}:
            raise SkippedError(f"bench.py limits it to {', '.join(peer.dtypes)}")

    def _converted(self, convert: Callable[..., Any] | None) -> Callable[[Any], Outputs]:
        if convert is None:
            return self._in_order
        return lambda results: {name: _array(value) for name, value in convert(results).items()}


def _imported(name: str) -> Callable[..., Any]:
    try:
        function: Callable[..., Any] = pkgutil.resolve_name(name)
    except ModuleNotFoundError as error:
        raise SkippedError(f"{error.name} is not installed") from error
    except AttributeError as error:
        raise SkippedError(name.replace(":", " has no ")) from error
    return function


def _array(value: Any) -> Array:
    return as_array(value.detach().contiguous()) if isinstance(value, torch.Tensor) else np.asarray(value)


def bound(session: Any, feeds: Mapping[str, Array]) -> Callable[[], Any]:
    """Return a call of a session that reads its inputs in place and returns its new outputs, as OrtValue."""
    binding = session.io_binding()
    kept = []
    for name, array in feeds.items():
        held = np.asarray(array, order="C")  # np.ascontiguousarray makes an axis for a scalar
        kept.append(held)
        _require_bytes(held.dtype)
        element = onnx.helper.np_dtype_to_tensor_dtype(held.dtype)
        if held.size:
            binding.bind_input(name, "cpu", 0, element, held.shape, held.ctypes.data)
        else:
            binding.bind_cpu_input(name, held)
    names = [value.name for value in session.get_outputs()]
    run = session.run_with_iobinding

    def call() -> Any:
        binding.clear_binding_outputs()
        for name in names:
            binding.bind_output(name, "cpu")
        run(binding)
        return binding

    call.__dict__["kept"] = kept  # as long as the call: the session reads their memory
    return call


def _require_bytes(dtype: np.dtype[Any]) -> None:
    """Raise SkippedError where the memory of a tensor of ONNX Runtime is not that of an array."""
    if dtype == np.object_ or str(dtype) in FOUR_BITS:
        raise SkippedError("doit bench cannot time strings and 4-bit numbers in ONNX Runtime")


def read(binding: Any) -> list[Array]:
    """Return copies of the outputs that a call of `bound` has made, also of dtypes that NumPy lacks."""
    outputs = []
    for value in binding.get_outputs():
        dtype = numpy_dtype(str(onnx.helper.tensor_dtype_to_np_dtype(value.element_type())))  # type: ignore[arg-type]  # a DType by its name
        _require_bytes(dtype)
        shape = tuple(value.shape())
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        content = ctypes.string_at(value.data_ptr(), size) if size else b""
        outputs.append(np.frombuffer(content, dtype).reshape(shape))
    return outputs
