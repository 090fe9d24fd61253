"""Build, run and export the torch model that a user's function returns: the part of `doit check` that needs torch."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from onnx import ModelProto
from torch.utils import _pytree

from opmatrix.addons.check.graph_walk import format_value
from opmatrix.basics import finding
from opmatrix.basics.errors import OpmatrixError, UsageError, did_you_mean, many, one_line
from opmatrix.basics.files import line_in, write_bytes
from opmatrix.basics.finding import Finding
from opmatrix.data import dataset
from opmatrix.data.arrays import Array
from opmatrix.declaration.isolated import read_operators
from opmatrix.declaration.load import Operator
from opmatrix.export import legacy_exporter
from opmatrix.export.exporter_warnings import collected, unexpected
from opmatrix.export.exporters import explain
from opmatrix.export.generated_modules import load_generated
from opmatrix.export.traced import ExporterInput
from opmatrix.lowering.call import Lowered
from opmatrix.project.cells import Exporter
from opmatrix.project.paths import DATA_SET, Paths
from opmatrix.signature import versions as schema_versions
from opmatrix.torch_ops import aten_overloads
from opmatrix.torch_ops import load as load_library
from opmatrix.torch_ops.call import torch_minor
from opmatrix.torch_ops.case_tensors import as_array

PART = "capture.json"


def run(paths: Paths, *, target: str, exporters: Sequence[Exporter], opset: int, into: Path) -> None:
    """Write a folder per exporter, with model.onnx and the outputs of torch as test_data_set_0, and the findings.

    capture.json first records each activity, `doing`, in case the process crashes in it. A user's mistake is no error
    of this stage but a result: `error` in capture.json.
    """
    record = _Record(into / PART)
    try:
        record.doing(f"the operators of this project were loaded into torch {torch_minor()}")
        loaded = load(paths, read_operators(paths).operators)
        record.doing(f"{target} ran")
        model = build(target, paths.root)
        model.module.eval()
        inputs = _described(model.input_names, model.inputs)
        record.add(finding.ok("function", f"gives the module {type(model.module).__name__}, inputs: {inputs}"))
        record.doing(f"the model ran in torch {torch_minor()}")
        outputs = _run(model, target, loaded)
    except OpmatrixError as error:
        record.write(doing="", error=str(error))
        return
    names = model.output_names or ("output",)
    if len(names) != len(outputs):
        names = tuple(f"output_{n}" for n in range(len(outputs)))
    record.add(finding.ok("torch", f"runs in torch {torch.__version__}; outputs: {_described(names, outputs)}"))
    for exporter in exporters:
        name = f"torch{torch_minor()}-{exporter}-opset{opset}"
        record.doing(f"the {exporter} exporter ran", name)
        path = _export(model, loaded, exporter=exporter, opset=opset, names=names, folder=into / name, record=record)
        if path:
            data = dataset.DataSet(
                inputs=dict(zip(model.input_names, map(to_array, model.inputs), strict=True)),
                outputs=dict(zip(names, map(to_array, outputs), strict=True)),
            )
            dataset.write(path.parent / f"{DATA_SET}0", data)
            record.add_model(path)
    record.doing("")


def _described(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> str:
    return ", ".join(f"{name} {format_value(to_array(tensor))}" for name, tensor in zip(names, tensors, strict=True))


class _Record:
    """The findings so far, in the file that `doit check` reads."""

    def __init__(self, path: Path) -> None:
        self._path, self._findings, self._cells = path, list[Finding](), dict[str, Any]()
        self._state = {"doing": "", "cell": "", "error": ""}

    def doing(self, what: str, cell: str = "") -> None:
        if cell:
            self._cells[cell] = {"findings": [], "model": None}
        self.write(doing=what, cell=cell)

    def add(self, latest: Finding) -> None:
        if cell := self._state["cell"]:
            self._cells[cell]["findings"].append(vars(latest))
        else:
            self._findings.append(latest)
        self.write()

    def add_model(self, model: Path) -> None:
        self._cells[self._state["cell"]]["model"] = str(model)
        self.write()

    def write(self, **state: str) -> None:
        self._state |= state
        finding.write(self._path, self._findings, cells=self._cells, **self._state)


def _run(model: TorchModel, target: str, loaded: LoadedOperators) -> tuple[torch.Tensor, ...]:
    """Return the outputs of the module. Raises UsageError where it raises, or returns other things than tensors."""
    try:
        with torch.no_grad():
            given = model.module(*(t.clone() for t in model.inputs))
    except Exception as error:  # a user's module may raise anything
        text = f"{target}: the module raised {error_text(error)}"
        missing = next((why for name, why in loaded.missing.items() if name.partition("::")[2] in str(error)), "")
        raise UsageError(f"{text}. {missing}" if missing else text) from error
    leaves = _pytree.tree_leaves(given)
    if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        kinds = ", ".join(sorted({type(leaf).__name__ for leaf in leaves})) or "nothing"
        raise UsageError(f"{target}: the module returned {kinds}; it must return tensors")
    return tuple(leaves)


def _export(
    model: TorchModel,
    loaded: LoadedOperators,
    *,
    exporter: Exporter,
    opset: int,
    names: Sequence[str],
    folder: Path,
    record: _Record,
) -> Path | None:
    """Write model.onnx; return its path, or None where the exporter raised."""
    with collected() as said:
        try:
            with torch.no_grad():
                proto = export(model, loaded, exporter=exporter, opset=opset, outputs=names)
        except Exception as error:  # the tracer, the passes and the model may raise anything
            text = str(error) if isinstance(error, OpmatrixError) else explain(error)
            record.add(finding.wrong("export", f"the {exporter} exporter: {text[:500]}"))
            return None
    path = folder / "model.onnx"
    write_bytes(path, proto.SerializeToString(deterministic=True))
    record.add(finding.ok("export", f"{exporter}, opset {opset}: {many(len(proto.graph.node), 'node')}"))
    for text in unexpected(said):
        record.add(finding.note("export", f"the exporter warned: {text.partition('. ')[0]}"))
    got = {o.domain: o.version for o in proto.opset_import}.get("")
    if got != opset:
        text = f"asked for opset {opset}, the exporter wrote {got}"
        remedy = "Choose an opset that the model's operators have: --opset"
        record.add(finding.wrong("export", text, remedy))
    return path


OPTIONS = ("input_names", "output_names", "dynamic")  # keys of the dict that the function may return third


@dataclass(frozen=True, kw_only=True)
class TorchModel:
    """A module, its inputs, and the names that the exported model gives to inputs and outputs.

    `dynamic` names the dynamic axes per input (None: static), as `Model.dynamic` in cases.py does.
    """

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...] | None
    dynamic: Mapping[str, tuple[str | None, ...]]


def build(target: str, folder: Path) -> TorchModel:
    """Call `module:function` or `file.py:function`, found in `folder`. Raises UsageError, one sentence."""
    source, _, name = target.rpartition(":")
    module = _load(source, folder)
    function = getattr(module, name, None)
    if not callable(function):
        found = [n for n, v in vars(module).items() if inspect.isfunction(v)]
        has = ", ".join(found) or "none"
        raise UsageError(f"{source}: no function {name!r}, there is: {has}{did_you_mean(name, found)}")
    try:
        returned = function()
    except Exception as error:  # a user's function may raise anything
        raise UsageError(f"{target}: {name}() raised {error_text(error, str(module.__file__))}") from error
    return _validated(returned, f"{target}: {name}()")


def _load(source: str, folder: Path) -> ModuleType:
    path = folder / source
    is_file = path.suffix == ".py"
    sys.path.insert(0, str(path.parent if is_file else folder))
    try:
        if not is_file:
            return importlib.import_module(source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # as an import does, so that its classes can be pickled
        spec.loader.exec_module(module)
        return module
    except Exception as error:  # a user's module may raise anything
        name = error.name if isinstance(error, ModuleNotFoundError) and not is_file else None
        if name and (source == name or source.startswith(f"{name}.")):
            raise UsageError(
                f"no module {source!r} can be imported from {folder}; write module:function, or "
                "path/to/file.py:function"
            ) from error
        file = str(path) if is_file and not isinstance(error, ModuleNotFoundError) else ""
        raise UsageError(f"{source}: its import raised {error_text(error, file)}") from error


def error_text(error: BaseException, file: str = "") -> str:
    """Return type and message of an error, and the last line of `file` in its traceback."""
    line = line_in(file, error)
    return f"{type(error).__name__}: {one_line(error)[:500]}" + (f" (line {line})" if line else "")


def _validated(returned: object, what: str) -> TorchModel:
    wanted = "return (module, inputs), or (module, inputs, options)"
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        raise UsageError(f"{what} returned a {_kind(returned)}; {wanted}")
    module, inputs, options = (*returned, {}) if len(returned) == 2 else returned
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{what} returned a {_kind(module)} as the module, which must be a torch.nn.Module; {wanted}")
    tensors = (inputs,) if isinstance(inputs, torch.Tensor) else inputs
    wrong = [t for t in tensors if not isinstance(t, torch.Tensor)] if isinstance(tensors, tuple | list) else [tensors]
    if wrong:
        raise UsageError(
            f"{what} returned a {_kind(wrong[0])} among the inputs, which must be a tuple of tensors; {wanted}"
        )
    if not isinstance(options, Mapping):
        raise UsageError(f"{what} returned a {_kind(options)} as the options, which must be a dict; {wanted}")
    for name in options:
        if name not in OPTIONS:
            near = did_you_mean(str(name), OPTIONS)
            raise UsageError(f"{what} returned the option {name!r}, allowed: {', '.join(OPTIONS)}{near}")
    return _with_options(module, tuple(tensors), options, what)


def _with_options(
    module: torch.nn.Module, tensors: tuple[torch.Tensor, ...], options: Mapping[str, Any], what: str
) -> TorchModel:
    names = tuple(options.get("input_names") or ())
    if not names:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(module.forward).parameters.values()
        names = tuple(p.name for p in parameters if p.kind in kinds)[: len(tensors)]
        if len(names) < len(tensors):
            names = tuple(f"input_{n}" for n in range(len(tensors)))
    if len(names) != len(tensors) or len(set(names)) != len(names):
        raise UsageError(f"{what} returned input_names {list(names)} for {len(tensors)} inputs; one name for each")
    dynamic = {name: tuple(axes) for name, axes in dict(options.get("dynamic") or {}).items()}
    for name, axes in dynamic.items():
        if name not in names:
            raise UsageError(
                f"{what}: dynamic names {name!r}, the inputs are {', '.join(names)}{did_you_mean(name, names)}"
            )
        if len(axes) != (rank := tensors[names.index(name)].dim()):
            raise UsageError(
                f"{what}: dynamic gives {name!r} {len(axes)} axes, it has {rank}; write None for a static one"
            )
    outputs = tuple(options.get("output_names") or ()) or None
    return TorchModel(module=module, inputs=tensors, input_names=names, output_names=outputs, dynamic=dynamic)


def _kind(value: object) -> str:
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__


def to_array(tensor: torch.Tensor) -> Array:
    """Return a tensor as an array; NumPy's bfloat16 is that of ml_dtypes."""
    return as_array(tensor.detach().cpu().contiguous())


class Generators:
    """The generators that operators draw seeds from, with their states at the first number, so that each run of a model
    draws the same numbers, and the exported ones are those of the run that they are compared with."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[torch.Generator, torch.Tensor]] = {}

    def watch(self, fake: Any) -> None:
        """Watch the generators of one operator, given by its generated module fake.py."""
        if next_seed := getattr(fake, "next_seed", None):

            def watched(generator: torch.Generator | None, *limits: int | None) -> Any:
                used = torch.default_generator if generator is None else generator
                self._first.setdefault(id(used), (used, used.get_state()))
                return next_seed(generator, *limits)

            fake.next_seed = watched

    def rewind(self) -> None:
        """Set each generator to its state at the first number."""
        for generator, state in self._first.values():
            generator.set_state(state)


@dataclass(frozen=True, kw_only=True)
class LoadedOperators:
    """The loaded operators, kept by `alive`; `missing` maps the torch names of the others to the error."""

    lowered: Sequence[Lowered]
    missing: Mapping[str, str]
    alive: Sequence[Any] = field(repr=False)
    generators: Generators

    def versions(self) -> dict[str, int]:
        """Return the version of each custom domain to import: the first that has everything that is declared."""
        versions: dict[str, int] = {}
        for spec in (s for one in self.lowered for s in (one.spec, *one.used)):
            versions[spec.onnx.domain] = max(versions.get(spec.onnx.domain, 1), *schema_versions.versions(spec))
        return versions


def load(paths: Paths, operators: Sequence[Operator]) -> LoadedOperators:
    """Load library, fake kernel and lowering of every operator that is built."""
    lowered, alive, missing, generators = [], [], {}, Generators()
    for operator in operators:
        if operator.spec.torch is None:
            continue
        try:
            generated = load_generated(paths, operator.name)
            loaded = load_library.load(paths, operator)
            if not (operator.spec.torch.overrides or operator.spec.torch.python):
                generated.fake.register_fake()
                generators.watch(generated.fake)
            aten_overloads.overloads(operator.spec)
            lowered.append(generated.lowered("custom"))
        except (OpmatrixError, RuntimeError) as error:
            missing[operator.spec.torch.name] = str(error)
            continue
        alive.append(loaded)
    return LoadedOperators(lowered=lowered, missing=missing, alive=alive, generators=generators)


def export(
    model: TorchModel, loaded: LoadedOperators, *, exporter: Exporter, opset: int, outputs: Sequence[str]
) -> ModelProto:
    """Export the model with one of torch's exporters, every operator in its custom lowering."""
    loaded.generators.rewind()
    named = [model.dynamic.get(name, ()) for name in model.input_names]
    given = ExporterInput(
        module=model.module,
        inputs=tuple(t.detach().clone() for t in model.inputs),  # a model may write to them
        lowered=loaded.lowered,
        opset=opset,
        versions=loaded.versions(),
        input_names=model.input_names,
        output_names=outputs,
        axes=[{axis: name for axis, name in enumerate(names) if name} for names in named],  # the dynamic ones
    )
    if exporter == "legacy":
        return legacy_exporter.write(given)
    from opmatrix.export import dynamo_exporter  # it imports modules that older versions of torch lack

    return dynamo_exporter.write(given)
