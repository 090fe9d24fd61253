"""Use an unpacked wheel as its user does: the program that `opmatrix.wheel.run_unpacked` starts, twice.

    torch   import it, run every case, its fake kernels and gradients, and export every model with both exporters
    ort     run every case of those models in ONNX Runtime; torch is not importable

Imports nothing of opmatrix, and makes it impossible to import: what the wheel lacks is then missing here too. Writes
the outputs of each case as TensorProtos. Prints what runs now, and at the end `DONE` or why the wheel does not work.
Each of these lines begins with a mark, because a kernel may print too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any, NoReturn

Job = Mapping[str, Any]
_CHECKOUT = ("opmatrix", "pipeline", "ops", "dodo")  # what the user of a wheel does not have
NOW, FAILED, DONE = "# now ", "# failed ", "# done"
_SMALL, _TINY = 1000, 64  # elements up to which gradcheck is used, and up to which it varies each


class Blocked:
    """Refuse imports: a finder for sys.meta_path."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}, which an environment with the wheel lacks", name=name)


def fail(problem: str) -> NoReturn:
    _say(f"{FAILED}{' '.join(problem.split())}")
    sys.exit(1)


def now(what: str) -> None:
    """Print what runs next, so that a crash names it."""
    _say(f"{NOW}{what}")


def _say(line: str) -> None:
    print(f"\n{line}", flush=True)  # a kernel may have printed part of a line


def data(folder: str) -> list[Any]:
    """Return the inputs of a data set."""
    from onnx import TensorProto, numpy_helper

    arrays: list[Any] = []
    while (path := Path(folder, f"input_{len(arrays)}.pb")).is_file():
        tensor = TensorProto.FromString(path.read_bytes())
        array = numpy_helper.to_array(tensor)
        if tensor.data_type == TensorProto.STRING:  # of which to_array drops the NULs at the end
            array.ravel()[:] = [text.decode() for text in tensor.string_data]
        arrays.append(array)
    return arrays


def write(folder: str, outputs: Sequence[Any]) -> None:
    import numpy as np
    from onnx import numpy_helper

    Path(folder).mkdir(parents=True)
    for index, array in enumerate(outputs):
        made = numpy_helper.from_array(np.asarray(array), f"o{index}")
        Path(folder, f"output_{index}.pb").write_bytes(made.SerializeToString())


def models(job: Job) -> Iterator[tuple[Job, Job]]:
    """Yield each operator with each of its models."""
    yield from ((operator, model) for operator in job["operators"] for model in operator["models"])


# In torch.


def arguments(model: Job, tensors: Sequence[Any]) -> list[Any]:
    """Return one argument per input from the tensors of a case: None for an absent one, a list for a variadic one."""
    found = model["arguments"]
    return [[tensors[i] for i in n] if isinstance(n, list) else None if n is None else tensors[n] for n in found]


def tensor(array: Any) -> Any:
    """Return a tensor in the memory of an array, which may be of ml_dtypes' bfloat16 or float8."""
    import torch

    if (name := str(array.dtype)).startswith(("bfloat16", "float8")):
        return torch.from_numpy(array.view(f"int{8 * array.itemsize}")).view(getattr(torch, name))
    return torch.from_numpy(array)


def as_array(tensor: Any) -> Any:
    import ml_dtypes
    import torch

    if (name := str(tensor.dtype).removeprefix("torch.")).startswith(("bfloat16", "float8")):
        bits = torch.int16 if name == "bfloat16" else torch.int8
        return tensor.view(bits).numpy().view(getattr(ml_dtypes, name))
    return tensor.numpy()


def call(operator: Job, model: Job, tensors: Sequence[Any]) -> tuple[Any, ...]:
    inputs = arguments(model, tensors)
    positional = [value if n is None else inputs[n] for n, value in model["by_position"]]
    by_name = {name: value if n is None else inputs[n] for name, n, value in model["by_name"]}
    outputs = called(operator["torch"], positional, by_name)
    return tuple(one for output in outputs for one in (output if isinstance(output, list | tuple) else [output]))


def called(qualified: str, positional: Sequence[Any], by_name: Mapping[str, Any]) -> tuple[Any, ...]:
    """Call the operator ``namespace::name``, or ``namespace::name.overload``; return its results."""
    import torch

    namespace, _, name = qualified.partition("::")
    name, _, overload = name.partition(".")
    function = getattr(getattr(torch.ops, namespace), name)
    returned = (getattr(function, overload) if overload else function)(*positional, **by_name)
    if returned is None:
        return ()
    return tuple(returned) if isinstance(returned, tuple) else (returned,)  # a list is one output


def composed(operator: Job, model: Job, tensors: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
    """Call the composed operator, with copies of the arguments that it writes and with generators that give the seeds;
    return all outputs: `outputs` in new memory."""
    import torch

    inputs, made = arguments(model, tensors), model["composed"]
    given = {}
    for argument in made["arguments"]:
        value = argument["value"] if argument["input"] is None else inputs[argument["input"]]
        if constant := argument["constant"]:
            value = torch.device(constant) if constant == "cpu" else getattr(torch, constant)
        if argument["output"] is not None:
            value = torch.empty_like(outputs[argument["output"]]) if argument["input"] is None else value.clone()
        given[argument["name"]] = value
    for name, state in model["generators"].items():
        given[name] = torch.Generator().set_state(torch.frombuffer(bytearray.fromhex(state), dtype=torch.uint8))
    by_name = {argument["name"]: given[argument["name"]] for argument in made["arguments"] if argument["keyword"]}
    positional = [value for name, value in given.items() if name not in by_name]
    results = called(operator["composed"], positional, by_name)
    return tuple(results[n] if name is None else given[name] for name, n in made["outputs"])


def use_in_torch(job: Job) -> None:
    now(f"import {job['name']}")
    if job["kernel"]:  # the folder of a kernel, which is imported under a name as `kernels` 0.17 does
        spec = spec_from_file_location(job["name"], Path(job["kernel"], "__init__.py"))
        assert spec and spec.loader
        wheel = sys.modules[job["name"]] = module_from_spec(spec)
        spec.loader.exec_module(wheel)
    else:
        wheel = import_module(job["name"])
    for operator in job["operators"]:
        if operator["torch"] and (why := wheel.unavailable.get(operator["name"])):
            fail(f"{operator['name']} is not available in torch: {why}")
    for operator, model in models(job):
        if not operator["torch"]:
            continue
        for case in model["cases"]:
            now(case["name"])
            tensors = [tensor(array.copy()) for array in data(case["data"])]
            try:
                outputs = call(operator, model, tensors)
            except Exception as error:  # a kernel may raise anything
                fail(f"{case['name']} in torch: {type(error).__name__}: {error}")
            write(f"{case['out']}/torch", [*map(as_array, outputs)])
            if operator["composed"]:
                now(f"{case['name']}, {operator['composed']}")
                try:
                    copies = composed(operator, model, tensors, outputs)
                except Exception as error:  # as above
                    fail(f"{case['name']} in torch: {operator['composed']}: {type(error).__name__}: {error}")
                write(f"{case['out']}/torch-composed", [*map(as_array, copies)])
            if operator["fake"]:
                check_fake(operator, model, case["name"], tensors, outputs)
    for operator in job["operators"]:
        if operator["gradient"]:
            check_gradient(job["name"], operator)
    for export in job["exports"]:
        now(f"the {export['exporter']} exporter")
        write_model(job, wheel, export)


def check_fake(operator: Job, model: Job, case: str, tensors: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Compare dtypes and shapes of the fake kernel's outputs with those of the kernel; sizes that only the kernel knows
    are symbols."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    try:
        with mode:
            fakes = call(operator, model, [mode.from_tensor(tensor, static_shapes=True) for tensor in tensors])
    except Exception as error:
        fail(f"{case}: the fake kernel raises {type(error).__name__}: {error}")
    for index, (fake, real) in enumerate(zip(fakes, outputs, strict=True)):
        sizes = [size if isinstance(size, int) else None for size in fake.shape]
        same = len(sizes) == real.dim() and all(s in (None, r) for s, r in zip(sizes, real.shape, strict=True))
        if fake.dtype != real.dtype or not same:
            fail(
                f"{case}: the fake kernel gives output {index} as {fake.dtype} of shape {tuple(fake.shape)}, "
                f"the kernel as {real.dtype} of shape {tuple(real.shape)}"
            )


def check_gradient(name: str, operator: Job) -> None:
    """Compare the formula with the kernel's numerical derivatives, for the largest case that is small and finite.

    Without a case in float64, or for a gradient that is not the derivative, test only that the formula runs: register
    has compared it with the reference.
    """
    import torch

    packed: Any = import_module(f"{name}._operators.{operator['name']}.torch_op") if operator["torch_op"] else None
    without: Any = getattr(packed, "WITHOUT_GRADIENT", operator["without"])
    usable = []
    for model in operator["models"]:
        for case in model["cases"]:
            tensors = [tensor(array.copy()) for array in data(case["data"])]
            derived = [i for i, t in enumerate(tensors) if t.is_floating_point() and model["inputs"][i] not in without]
            double = [i for i in derived if tensors[i].dtype == torch.float64]
            finite = all(0 < t.numel() <= _SMALL and bool(torch.isfinite(t).all()) for t in tensors)
            if derived and finite:
                size = sum(tensors[i].numel() for i in double or derived)
                usable.append((bool(double), size, case["name"], model, tensors, double or derived))
    if not usable:
        fail(f"{operator['name']}: no case to check its gradient with: a finite one of at most {_SMALL} elements")
    double_found, size, case, model, tensors, derived = max(usable, key=lambda sample: sample[:3])

    def function(*leaves: Any) -> tuple[Any, ...]:
        flat = list(tensors)
        for index, leaf in zip(derived, leaves, strict=True):
            flat[index] = leaf
        return tuple(o for o in call(operator, model, flat) if o.is_floating_point())

    now(f"the gradient for {case}")
    try:
        leaves = tuple(tensors[index].requires_grad_() for index in derived)
        if double_found and not getattr(packed, "NOT_A_DERIVATIVE", ""):
            torch.autograd.gradcheck(function, leaves, fast_mode=size > _TINY)
        else:
            torch.autograd.grad(sum(output.sum() for output in function(*leaves)), leaves)
    except Exception as error:  # GradcheckError, or an exception of backward()
        fail(f"{case}: the gradient: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")


def write_model(job: Job, wheel: Any, export: Job) -> None:
    """Export the models in one graph. If that fails, export those of each operator, to find the wrong one."""
    try:
        _export(job, wheel, export, export["operators"])
    except Exception as whole:  # an exporter may raise anything
        for name in export["operators"]:
            try:
                _export(job, wheel, export, [name])
            except Exception as error:
                fail(f"{name}: the {export['exporter']} exporter at opset {export['opset']}: {_cause(error)}")
        fail(f"the {export['exporter']} exporter at opset {export['opset']}: {_cause(whole)}")


def _cause(error: BaseException) -> str:
    """Return the first error, which an exporter wraps in its own."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return f"{type(error).__name__}: {error}"


def _export(job: Job, wheel: Any, export: Job, names: Sequence[str]) -> None:
    import torch

    parts: list[tuple[Job, Job, int, int]] = []
    tensors: list[Any] = []
    axes: list[dict[int, str]] = []
    related: dict[str, Job] = {}
    for operator, model in models(job):
        if operator["name"] in names and model["name"] in export["models"][operator["name"]]:
            given = [tensor(array.copy()) for array in data(model["cases"][0]["data"])]
            parts.append((operator, model, len(tensors), len(tensors) + len(given)))
            tensors += given
            axes += [{int(axis): name for axis, name in found.items()} for found in model["axes"]]
            related |= model["related"]

    class Module(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return tuple(o for op, model, first, end in parts for o in call(op, model, inputs[first:end]))

    module, opset, path = Module().eval(), export["opset"], export["path"]
    chosen = {"decomposed": [n for n in export["decomposed"] if n in names], "domains": export["domains"]}
    named: dict[str, Any] = {
        "input_names": [name for _, model, *_ in parts for name in model["graph"][0]],
        "output_names": [name for _, model, *_ in parts for name in model["graph"][1]],
    }
    if export["exporter"] == "legacy":
        dynamic = {name: found for name, found in zip(named["input_names"], axes, strict=True) if found}
        with wheel.onnx.symbolics(opset, **chosen):
            torch.onnx.export(
                module, tuple(tensors), path, dynamo=False, opset_version=opset, custom_opsets=export["domains"],
                dynamic_axes=dynamic, **named,
            )  # fmt: skip
        return
    dims = _dims({name for found in axes for name in found.values()}, related)
    shapes = tuple({axis: dims[name] for axis, name in found.items()} for found in axes)
    program = torch.onnx.export(
        torch.export.export(module, tuple(tensors), dynamic_shapes=(shapes,)), dynamo=True, opset_version=opset,
        custom_translation_table=wheel.onnx.translation_table(opset, **chosen), verbose=False, **named,
    )  # fmt: skip
    wheel.onnx.complete(program).save(path)


def _dims(names: Iterable[str], related: Mapping[str, Job]) -> dict[str, Any]:
    """Return torch's object for each dynamic axis, as `opmatrix.export.dynamo_exporter` makes it."""
    from torch.export import Dim

    free: Job = {"of": None, "minimum": None, "maximum": None}
    axes = {name: related.get(name, free) for name in sorted(names)}
    roots = {n: Dim(n, min=axis["minimum"], max=axis["maximum"]) for n, axis in axes.items() if axis["of"] is None}
    return roots | {n: roots[a["of"]] * a["factor"] + a["offset"] for n, a in axes.items() if a["of"] is not None}


# In ONNX Runtime.


def use_in_ort(job: Job) -> None:
    import onnx
    import onnxruntime
    from onnx.utils import Extractor

    library = import_module(f"{job['name']}_onnxruntime").library_path()
    edges = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "ort_checks/cast_edges.py")))
    by_name = {(operator["name"], model["name"]): model for operator, model in models(job)}

    def run(label: str, content: bytes, model: Job, feeds: Sequence[str], *, custom: bool) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors come as exceptions
        options.intra_op_num_threads = 1
        where = ""
        try:
            if custom:
                options.register_custom_ops_library(library)
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            if edges.needs_casts(session):
                cast = edges.with_float_edges(content, session)
                inner = onnxruntime.InferenceSession(cast, options, providers=["CPUExecutionProvider"])
                session = edges.CastSession(session, cast=inner)
            for case in model["cases"]:
                where = f"{case['name']}, {label}"
                now(where)
                outputs = session.run(None, dict(zip(feeds, data(case["data"]), strict=True)))
                write(f"{case['out']}/{label}", outputs)
        except Exception as error:  # ONNX Runtime's have no common base class
            fail(f"{where or model['cases'][0]['name'] + ', ' + label} in ONNX Runtime: {error}")

    for export in job["exports"]:
        whole = onnx.load_model(export["path"])
        del whole.graph.value_info[:]
        parts = Extractor(whole)
        for name in export["operators"]:
            for asked in export["models"][name]:
                model = by_name[name, asked]
                content = parts.extract_model(*model["graph"]).SerializeToString()
                run(export["label"], content, model, model["graph"][0], custom=name not in export["decomposed"])
    for _, model in models(job):
        if model["model"]:
            read = onnx.load_model(model["model"])
            feeds = [value.name for value in read.graph.input]
            run("model", read.SerializeToString(), model, feeds, custom=True)


def main(side: str, path: str) -> None:
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    sys.path[:0] = [job["folder"]]
    sys.path += job["packages"]
    blocked = (*_CHECKOUT, *(["torch"] if side == "ort" else []))
    sys.meta_path.insert(0, Blocked(*blocked))
    try:
        use_in_torch(job) if side == "torch" else use_in_ort(job)
    except Exception as error:
        fail(f"{type(error).__name__}: {error}")
    _say(DONE)  # the exit code says less: code of the wheel may end the process with 0


if __name__ == "__main__":
    main(*sys.argv[1:])
