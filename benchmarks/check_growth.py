"""How do the time and the memory of `opmatrix check` grow with the nodes of a model?

    ./run python benchmarks/check_growth.py
    ./run python benchmarks/check_growth.py --smallest

The models: chains of 1,000, 10,000 and 100,000 nodes of five elementwise operators, and 22 convolutions of 64 channels
on an image of 224 by 224, a file of 3 MB. Memory is the largest sum of the resident sets of all processes, read ten
times a second. The exit code is 1 if a model is not right.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from measuring import ROOT, cpu_of_children, environment
from onnx import ModelProto, TensorProto, helper, numpy_helper

from opmatrix.basics.processes import memory

OPERATORS = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg")


def model(
    nodes: list[onnx.NodeProto], shape: list[int | str], out: list[int | str], weights: list[TensorProto]
) -> ModelProto:
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    given = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, out)
    graph = helper.make_graph(nodes, "g", [taken], [given], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def chain(count: int) -> ModelProto:
    names = ["x", *(f"v{number}" for number in range(count))]
    nodes = [
        helper.make_node(OPERATORS[number % 5], [names[number]], [names[number + 1]], name=f"n{number}")
        for number in range(count)
    ]
    return model(nodes, ["n", 4], ["n", 4], [])


def convolutions(count: int, size: int) -> ModelProto:
    random = np.random.default_rng(0)
    nodes, weights, before, channels = [], [], "x", 3
    for number in range(count):
        weight = random.standard_normal((64, channels, 3, 3)) * (2 / (9 * channels)) ** 0.5
        weights.append(numpy_helper.from_array(weight.astype(np.float32), f"w{number}"))
        nodes.append(helper.make_node("Conv", [before, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        before, channels = f"r{number}", 64
    return model(nodes, [1, 3, size, size], [1, 64, size, size], weights)


def models(*, smallest: bool) -> Iterator[tuple[str, ModelProto]]:
    for count in (100,) if smallest else (1000, 10_000, 100_000):
        yield f"{count:,} nodes", chain(count)
    yield ("2 Conv", convolutions(2, 32)) if smallest else ("22 Conv", convolutions(22, 224))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smallest", action="store_true", help="small models, which tests that the program works")
    right = True
    print(f"{'':16} {'seconds':>8} {'CPU s':>8} {'MB':>8}")
    for name, proto in models(smallest=parser.parse_args().smallest):
        with tempfile.TemporaryDirectory(prefix="opmatrix-growth-") as folder:
            onnx.save(proto, Path(folder) / "model.onnx")
            program = "import sys; from opmatrix.commands.main import main; sys.exit(main())"
            began, cpu, largest = time.perf_counter(), cpu_of_children(), 0
            check = subprocess.Popen(
                [sys.executable, "-c", program, "check", "model.onnx"],
                cwd=folder, env=environment() | {"PYTHONPATH": str(ROOT / "pipeline")}, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            while check.poll() is None:
                largest = max(largest, memory(check.pid))
                time.sleep(0.1)
            seconds = time.perf_counter() - began
            print(f"{name:16} {seconds:>8.1f} {cpu_of_children() - cpu:>8.1f} {largest / 1e6:>8.0f}", flush=True)
            right = right and check.returncode == 0
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
