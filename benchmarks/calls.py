"""What one smallest call of an operator costs beside its kernel: the generated bindings, and others of the same kernel.

    ./run python benchmarks/calls.py [--rounds 25] [--calls 4000] [--nodes 200]

Compiles the operators group_norm and dual_residual (elementwise, two outputs), and other bindings of the same kernel
objects (peer/calls_*.cc). Then calls all with tensors of two elements, interleaved in this process, on one thread:

- torch, from Python (`torch.ops`), and from C++ through torch's dispatcher, without Python's part of a call
- torch, from Python, with inputs of 8x64x56x56 in channels_last, which the classic binding copies
- ONNX Runtime: a chain of nodes, so that the fixed cost of a run hides no call; each figure is the whole run's time
  divided by the number of nodes. The table also has a chain of a built-in operator, of the same length.

ns: the smallest of all rounds, CPU time of the thread. ratio: the median of the rounds' ratios to the first row, and
the quarter and three quarter points.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring import DOIT, ROOT, copy_project, environment

from opmatrix.toolchain.find import find_compiler
from opmatrix.toolchain.headers import find_torch_build

PEERS = ROOT / "benchmarks" / "peer"
OPERATORS = {"group_norm": "mynamespace::custom_group_norm", "dual_residual": "cst::dual_residual"}
TORCH = {
    "classic: TORCH_LIBRARY": "calls_classic",
    "classic: m.def(schema, function)": "calls_implicit",
    "torch's C++ layer of the stable ABI": "calls_layer",
    "bare stable ABI: new_empty": "calls_bare",
    "bare stable ABI: empty_strided": "calls_strided",
    "bare stable ABI: and checked": "calls_checked",
    "generated, classic": "calls_generated",
    "generated, stable ABI": "",
}
ORT = {
    "Ort::CustomOpBase, one shape": "calls.base",
    "Ort::CustomOpBase, all shapes": "calls.shapes",
    "lite custom op": "calls.lite",
    "bare C API": "calls.bare",
    "generated": "",
}
BUILT_IN = {"group_norm": "LayerNormalization", "dual_residual": "Add"}
NUMBER = {"group_norm": 1e-5, "dual_residual": 2.0}  # with 2, a chain of dual_residual keeps its numbers


def build(folder: Path) -> Path:
    """Compile the operators and the peers in a copy of the project; return the folder of the copy."""
    project = copy_project(folder)
    run([*DOIT, *(f"compile:{name}" for name in OPERATORS)], cwd=project)
    torch = find_torch_build(Path(sys.prefix))
    native, made = project / "native", project / "build/compile"
    cxx = find_compiler(os.environ)
    common = [*cxx, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{PEERS}"]
    common += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}", f"-I{native / 'include'}", f"-I{native / 'binding'}"]
    common += [f"-I{project / 'build/generated' / name}" for name in OPERATORS]
    kernels = [str(made / name / "kernel.o") for name in OPERATORS] + [str(made / "group_norm/runtime.o")]
    headers = [arg for include in torch.includes for arg in ("-isystem", str(include))]
    libraries = ["-Wl,--no-as-needed", *map(str, torch.libraries)]  # the peers ask for weak symbols alone
    places = (made / "group_norm/places.ninja").read_text().split("ort_include = ")[1].splitlines()[0]
    (folder / "classic").mkdir()
    for name, operator in OPERATORS.items():  # under another name, so that both bindings are in this process
        text = (project / "build/generated" / name / "torch.cc").read_text()
        space, _, function = operator.partition("::")
        text = text.replace(f'"{space}"', '"calls_generated"').replace(f'"{function}', f'"{name}')
        (folder / "classic" / f"{name}.cc").write_text(text)
    parts: Mapping[str, Sequence[str]] = {
        "calls_classic": [str(PEERS / "calls_classic.cc"), *headers, *libraries],
        "calls_layer": [
            str(PEERS / "calls_layer.cc"),
            "-DTORCH_TARGET_VERSION=0x020d000000000000",
            *headers,
            *libraries,
        ],
        "calls_bare": [str(PEERS / "calls_bare.cc"), f"-I{native / 'binding/stable'}", *libraries],
        "calls_ort": [str(PEERS / "calls_ort.cc"), "-isystem", places],
    }
    for name, arguments in parts.items():
        run([*common, *arguments, *kernels, "-o", str(folder / f"{name}.so")], cwd=folder)
    for name in OPERATORS:
        source = [str(folder / "classic" / f"{name}.cc"), f"-I{native / 'binding/classic'}", *headers, *libraries]
        alone = [arg for arg in common if not arg.startswith(f"-I{project / 'build/generated'}")]
        objects = [str(made / name / "kernel.o"), str(made / name / "runtime.o")]
        place = f"-I{project / 'build/generated' / name}"  # first: each operator has a checks.h
        run([*alone, place, *source, *objects, "-o", str(folder / f"calls_generated_{name}.so")], cwd=folder)
    return project


def run(command: Sequence[str], *, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


Timed = Callable[[int], float]  # ns of one call, from so many calls


def torch_calls(folder: Path, project: Path) -> Mapping[str, Mapping[str, Timed]]:
    """Return the rows of each table of torch."""
    import torch

    torch.set_num_threads(1)
    for name in ("calls_classic", "calls_layer", "calls_bare", *(f"calls_generated_{name}" for name in OPERATORS)):
        torch.ops.load_library(str(folder / f"{name}.so"))
    tables: dict[str, dict[str, Timed]] = {}
    for name, operator in OPERATORS.items():
        torch.ops.load_library(str(project / f"build/compile/{name}/lib{name}_torch.so"))
        x = torch.tensor([[[1.0], [3.0]]])
        others = [torch.ones(1), torch.ones(2), torch.zeros(2)] if name == "group_norm" else [x.clone()]
        inputs, number = [x, *others], NUMBER[name]
        expected = None
        python, boxed = {}, {}
        for title, space in TORCH.items():
            full = f"{space}::{name}" if space else operator
            function = getattr(getattr(torch.ops, full.split("::")[0]), full.split("::")[1]).default
            result = function(*inputs, number)
            results = [result] if isinstance(result, torch.Tensor) else [*result]
            if expected is not None and not all(map(torch.equal, results, expected)):
                sys.exit(f"{full} gives {results}, and the classic binding {expected}")
            expected = expected or results
            python[title] = from_python(function, (*inputs, number))
            boxed[title] = from_dispatcher(torch.ops.calls_classic.repeat.default, full, inputs, number)
        tables[f"torch {torch.__version__}, {name}, from Python"] = python
        tables[f"torch {torch.__version__}, {name}, from C++"] = boxed
    tables[f"torch {torch.__version__}, dual_residual, channels_last, 8x64x56x56"] = channels_last()
    return tables


def channels_last() -> Mapping[str, Timed]:
    """Return the rows of an elementwise operator whose inputs are in channels_last: the classic one copies them."""
    import torch

    x, y = (torch.randn(8, 64, 56, 56).contiguous(memory_format=torch.channels_last) for _ in range(2))
    expected = [2 * x - y, 2 * y - x]
    rows: dict[str, Timed] = {}
    for title, space in TORCH.items():
        if title.startswith(("classic: TORCH_LIBRARY", "generated")):
            function = getattr(torch.ops, space or "cst").dual_residual.default
            if not all(map(torch.allclose, function(x, y, 2.0), expected)):
                sys.exit(f"{title} gives a wrong result for channels_last")
            rows[title] = few(from_python(function, (x, y, 2.0)))
    return rows


def few(timed: Timed) -> Timed:
    """Return the time of a call that takes a thousand times as long as the smallest, from fewer calls."""
    return lambda count: timed(max(1, count // 1000))


def from_python(function: Callable[..., object], arguments: Sequence[object]) -> Timed:
    def timed(count: int) -> float:
        before = time.thread_time_ns()
        for _ in range(count):
            function(*arguments)
        return (time.thread_time_ns() - before) / count

    return timed


def from_dispatcher(repeat: Callable[..., int], name: str, inputs: Sequence[object], number: float) -> Timed:
    return lambda count: repeat(name, inputs, number, count) / count


def ort_calls(folder: Path, project: Path, nodes: int) -> Mapping[str, Mapping[str, Timed]]:
    """Return the rows of each table of ONNX Runtime."""
    import numpy as np
    import onnxruntime

    tables: dict[str, dict[str, Timed]] = {}
    for name, known in itertools.product(OPERATORS, (True, False)):
        rows: dict[str, Timed] = {}
        expected = None
        for title, space in {**ORT, f"built-in: {BUILT_IN[name]}": "ai.onnx"}.items():
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            own = str(project / f"build/compile/{name}/lib{name}_ort.so")
            if space != "ai.onnx":
                options.register_custom_ops_library(str(folder / "calls_ort.so") if space else own)
            model = chain(name, space, nodes, known=known)
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            binding = session.io_binding()
            for given in session.get_inputs():
                value = np.array([[[1.0], [3.0]]], np.float32)
                binding.bind_ortvalue_input(given.name, onnxruntime.OrtValue.ortvalue_from_numpy(value))
            for result in session.get_outputs():
                binding.bind_output(result.name)
            session.run_with_iobinding(binding)
            results = binding.copy_outputs_to_cpu()
            if space != "ai.onnx":
                if expected is not None and not all(map(np.array_equal, results, expected)):
                    sys.exit(f"{title} gives {results}, and {next(iter(ORT))} {expected}")
                expected = expected or results
            rows[title] = from_session(session, binding, nodes)
        sizes = "sizes in the model" if known else "no sizes in the model"
        tables[f"ONNX Runtime {onnxruntime.__version__}, {name}, a node of {nodes}, {sizes}"] = rows
    return tables


def from_session(session: Any, binding: Any, nodes: int) -> Timed:
    run_chain = session.run_with_iobinding

    def timed(count: int) -> float:
        runs = max(1, count // nodes)
        before = time.thread_time_ns()
        for _ in range(runs):
            run_chain(binding)
        return (time.thread_time_ns() - before) / runs / nodes

    return timed


def chain(name: str, space: str, nodes: int, *, known: bool = True) -> bytes:
    """Return a model with a chain of nodes of an operator in the domain of a binding, or of the built-in operator.

    `known`: with the sizes of every value, as most exporters write them. ONNX Runtime plans memory where it knows
    sizes, which takes time in each node; without them it knows those of the generated binding alone, which infers them.
    """
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    domains = {"group_norm": ("mydomain", "mygroupnorm"), "dual_residual": ("rknn_cst", "cstDualResidual")}
    own, op_type = domains[name]
    attributes = {"epsilon" if name == "group_norm" else "alpha": NUMBER[name]}
    if space:
        own, op_type = space, "GroupNorm" if name == "group_norm" else "DualResidual"
    constants = {"num_groups": [1.0], "scale": [1.0, 1.0], "bias": [0.0, 0.0]}
    ends = ["x"] if name == "group_norm" else ["x", "y"]
    more = [*constants] if name == "group_norm" else []
    if space == "ai.onnx":
        own, op_type = "", BUILT_IN[name]
        attributes = {"axis": 1} if name == "group_norm" else {}
        constants, more = {"scale": [[1.0], [1.0]], "bias": [[0.0], [0.0]]}, more[1:]
    made, last = [], ends
    for index in range(nodes):
        results = [f"{end}_{index}" for end in ends]
        taken = results[:1] if own == "" else results
        made.append(helper.make_node(op_type, [*last, *more], taken, domain=own, **attributes))
        last = [*taken, *last[len(taken) :]]
    shape = [1, 2, 1]
    tensor = onnx.TensorProto.FLOAT
    values = [numpy_helper.from_array(np.array(constants[name], np.float32), name) for name in more]
    graph = helper.make_graph(
        made,
        "chain",
        [helper.make_tensor_value_info(end, tensor, shape) for end in ends],
        [helper.make_tensor_value_info(end, tensor, shape) for end in made[-1].output],
        values,
        value_info=[
            helper.make_tensor_value_info(result, tensor, shape)
            for node in made[:-1]
            for result in node.output
            if known
        ],
    )
    imports = [helper.make_opsetid("", 17), *([helper.make_opsetid(own, 1)] if own else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def measure(rows: Mapping[str, Timed], *, rounds: int, calls: int) -> Mapping[str, list[float]]:
    """Return the ns of each row in each round. Each round begins at another row."""
    found: dict[str, list[float]] = {title: [] for title in rows}
    titles = [*rows]
    for title in titles:
        rows[title](calls)
    for number in range(rounds):
        at = number % len(titles)
        for title in (*titles[at:], *titles[:at]):
            found[title].append(rows[title](calls))
    return found


def table(found: Mapping[str, list[float]]) -> list[str]:
    base = next(iter(found.values()))
    lines = [f"{'':36} {'ns':>7}  ratio"]
    for title, times in found.items():
        ratios = [mine / other for mine, other in zip(times, base, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        lines.append(f"{title:36} {min(times):7.0f}  {middle:.2f} ({low:.2f} to {high:.2f})")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--calls", type=int, default=4000, help="calls of each row in a round")
    parser.add_argument("--nodes", type=int, default=200, help="nodes of a chain in ONNX Runtime")
    parser.add_argument("--json", type=Path, help="also write the ns of each round to this file")
    parser.add_argument("--smallest", action="store_true", help="two rounds with few calls: what a test runs")
    options = parser.parse_args()
    if options.smallest:
        options.rounds, options.calls, options.nodes = 2, 20, 10
    with tempfile.TemporaryDirectory(prefix="opmatrix-calls-") as name:
        folder = Path(name)
        project = build(folder)
        tables = {**torch_calls(folder, project), **ort_calls(folder, project, options.nodes)}
        found = {}
        for title, rows in tables.items():
            found[title] = measure(rows, rounds=options.rounds, calls=options.calls)
            print(f"\n{title}", *table(found[title]), sep="\n", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
