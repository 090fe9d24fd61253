"""Run the model in this folder in ONNX Runtime and compare its outputs with the expected ones: `python replay.py`.

Needs onnxruntime and numpy. It exits with 1 where an output differs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

FOLDER = Path(__file__).resolve().parent


def main() -> int:
    """Print a line for each output; return 1 where one differs, or ONNX Runtime runs what the reference rejects."""
    case = json.loads((FOLDER / "case.json").read_text(encoding="utf-8"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if case["library"]:
        options.register_custom_ops_library(str(FOLDER / case["library"]))
    session = onnxruntime.InferenceSession(str(FOLDER / "model.onnx"), options, providers=["CPUExecutionProvider"])
    inputs, expected = np.load(FOLDER / "inputs.npz"), np.load(FOLDER / "expected.npz")
    feed = {name: as_given(inputs[f"input_{n}"]) for n, name in enumerate(case["inputs"])}
    try:
        found, again = session.run(None, feed), session.run(None, feed)
    except Exception as error:  # ONNX Runtime has an exception for each of its codes
        print(f"ONNX Runtime raises {type(error).__name__}: {error}")
        return 0 if case["refusal"] else 1
    if case["refusal"]:
        print(f"ONNX Runtime computes what the reference rejects: {case['refusal']}")
        return 1
    right = [
        agrees(output, found[n], as_given(expected[f"output_{n}"]), expected.get(f"allowed_{n}", 0.0))
        and repeats(output["name"], found[n], again[n])
        for n, output in enumerate(case["outputs"])
    ]
    return 0 if all(right) else 1


def as_given(array: Any) -> Any:
    """Return an array as ONNX Runtime takes it: strings as objects."""
    return array.astype(object) if array.dtype.kind == "U" else array


def agrees(output: dict[str, Any], actual: Any, expected: Any, allowed: Any) -> bool:
    """Print how an output differs from the expected one, within atol + rtol * |expected| + allowed; return whether it
    agrees."""
    name, rtol, atol = output["name"], output["rtol"], output["atol"]
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        print(f"{name}: {actual.dtype}{list(actual.shape)}, expected {expected.dtype}{list(expected.shape)}")
        return False
    beyond = actual != expected
    if expected.dtype.kind == "f" or rtol or atol:
        a, e = actual.astype(np.float64), expected.astype(np.float64)
        with np.errstate(all="ignore"):
            near = np.isfinite(e) & (np.abs(a - e) <= atol + rtol * np.abs(e) + allowed)
        beyond = ~(near | (a == e) | (np.isnan(a) & np.isnan(e)) | np.isinf(allowed))
    count = int(np.count_nonzero(beyond))
    print(f"{name}: {count} of {expected.size} elements differ beyond rtol={rtol:g} atol={atol:g}")
    for index in np.argwhere(beyond)[:10]:
        at = tuple(int(i) for i in index)
        print(f"  {at}: expected {expected[at]!s}, got {actual[at]!s}")
    return not count


def repeats(name: str, first: Any, again: Any) -> bool:
    """Print whether a second run gave other values; return whether it did not."""
    same = (first == again) | ((first != first) & (again != again))
    if count := int(np.count_nonzero(~same)):
        print(f"{name}: a second run gives {count} other values")
    return not count


if __name__ == "__main__":
    print(f"ONNX Runtime {onnxruntime.__version__}")
    sys.exit(main())
