"""Compare kernels of examples/ with the operators that they are made after, call by call, in one process.

    ./run python benchmarks/kernels_originals.py [--python PYTHON] [--only roi_align ...] [--threads 1 2] [--seconds 2]

The originals: `torchvision.ops.roi_align`; `torchvision.ops.deform_conv2d` with a mask, which computes the formula of
mmcv's ModulatedDeformConv2d in the same way (im2col and addmm), and is used in its place because mmcv has no wheel with
operators for the CPU; causal_conv1d_ref of causal-conv1d 1.6, which is what that package has for the CPU, written out
below: a conv1d of torch and its silu.

Both are called in turn: A B A B. One thread is measured in CPU seconds of that thread, several in wall seconds; a row
has the medians, the median of the ratios of two neighbouring calls, and the range of the middle 80% of these ratios.
Below 1 the example is faster. The errors are the largest ones, as a share of the largest result, measured against the
original in float64; for float64 it is the difference between the two. Values are normally distributed. With several
threads, `scaling` is that of benchmarks/kernels.py: the gain of the example by threads, divided by that of the machine.

torchvision must fit the installed torch, and is optional. --python names a Python that has both; it needs no
opmatrix. Rows whose original is not installed are listed as not measured.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kernels import scaled
from measuring import ROOT, environment

PROJECTS = {"roi_align": "borrowed", "causal_conv1d": "borrowed", "modulated_deform_conv": "originals"}
HEAD = (
    f"{'':58} {'threads':>7} {'original':>10} {'example':>10} {'ratio':>6} {'(10% to 90%)':>14} {'errors':>17} "
    f"{'scaling':>7}"
)
LEAST_PAIRS = 5


@dataclass(frozen=True, kw_only=True)
class Row:
    """Two functions of the same tensors. `inputs` are float64; `exact` is the original for these."""

    label: str
    dtype: str
    inputs: tuple[Any, ...]
    original: Callable[..., Any]
    example: Callable[..., Any]


def build(operators: list[str], folder: Path) -> None:
    """Compile the libraries of operators of examples/ in copies of their projects."""
    made = shutil.ignore_patterns("build", "__pycache__", ".tox", ".venv*", ".hypothesis", ".doit*")
    for project in sorted({PROJECTS[name] for name in operators}):
        copy = shutil.copytree(ROOT / "examples" / project, folder / project, ignore=made)
        steps = [f"compile:{name}" for name in operators if PROJECTS[name] == project]
        done = subprocess.run(
            [sys.executable, "-m", "doit", *steps], cwd=copy, env=environment(), capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"examples/{project} did not compile:\n{done.stdout}{done.stderr}")


def causal_conv1d_rows(*, smallest: bool) -> Iterator[Row]:
    import torch

    def original(x: Any, weight: Any, bias: Any, states: Any, activation: str) -> Any:
        """As causal_conv1d_ref, with return_final_states; the dtypes are equal here."""
        steps, width = x.shape[-1], weight.shape[1]
        if states is None:
            out = torch.nn.functional.conv1d(x, weight.unsqueeze(1), bias, padding=width - 1, groups=weight.shape[0])
        else:
            x = torch.cat([states, x], dim=-1)
            out = torch.nn.functional.conv1d(x, weight.unsqueeze(1), bias, padding=0, groups=weight.shape[0])
        out = out[..., :steps]
        final = torch.nn.functional.pad(x, (width - 1 - x.shape[-1], 0))
        return (out if activation == "none" else torch.nn.functional.silu(out)), final

    example = torch.ops.borrowed.causal_conv1d
    sizes = ((2, 8, 64),) if smallest else ((2, 768, 64), (2, 768, 512), (2, 2048, 512), (2, 2048, 4096))
    plans = [(size, dtype, activation, False) for size in sizes for dtype in ("float32", "float64")
             for activation in ("none", "silu")]  # fmt: skip
    if not smallest:
        plans += [((2, 768, steps), "float32", "silu", True) for steps in (1, 512)]
    for (batch, channels, steps), dtype, activation, states in plans:
        inputs = (
            torch.randn(batch, channels, steps, dtype=torch.float64),
            torch.randn(channels, 4, dtype=torch.float64),
            torch.randn(channels, dtype=torch.float64),
            torch.randn(batch, channels, 3, dtype=torch.float64) if states else None,
            activation,
        )
        label = f"causal_conv1d {batch}x{channels}x{steps} {activation}{' states' if states else ''}"
        yield Row(label=label, dtype=dtype, inputs=inputs, original=original, example=example)


def roi_align_rows(*, smallest: bool) -> Iterator[Row]:
    import torch
    import torchvision

    example = torch.ops.borrowed.roi_align
    small, large = (1, 256, 50, 50), (2, 256, 200, 272)
    # A map, the number of boxes, and their least and greatest side in pixels of the map.
    sizes: list[tuple[tuple[int, ...], int, float, float]] = [
        (small, 100, 2, 32), (small, 1000, 2, 32), (large, 100, 4, 28), (large, 1000, 4, 28), (large, 100, 28, 200),
    ]  # fmt: skip
    for shape, count, least, greatest in [((1, 4, 20, 20), 10, 2, 12)] if smallest else sizes:
        for dtype in ("float32", "float64"):
            for ratio in (2, 0):
                height, width = shape[2:]
                sides = least + (greatest - least) * torch.rand(count, 2, dtype=torch.float64)
                corner = torch.rand(count, 2, dtype=torch.float64) * (torch.tensor([width, height]) - sides)
                index = torch.randint(shape[0], (count, 1)).to(torch.float64)
                rois = torch.cat([index, corner, corner + sides], dim=1)
                inputs = (torch.randn(shape, dtype=torch.float64), rois.to(torch.float32).to(torch.float64))
                yield Row(
                    label=f"roi_align {'x'.join(map(str, shape))} {count} of {least} to {greatest} ratio {ratio}",
                    dtype=dtype,
                    inputs=inputs,
                    original=lambda x, rois, ratio=ratio: torchvision.ops.roi_align(x, rois, 7, 1.0, ratio, True),
                    example=lambda x, rois, ratio=ratio: example(x, rois, 1.0, 7, 7, ratio, True),
                )


def modulated_deform_conv_rows(*, smallest: bool) -> Iterator[Row]:
    import torch
    import torchvision

    example = torch.ops.mmcv.modulated_deform_conv2d
    # Samples, channels, side of the image, filters, groups, deform_groups.
    sizes = [
        (1, 64, 56, 64, 1, 1), (1, 64, 56, 64, 1, 4), (1, 64, 56, 64, 4, 1), (1, 128, 28, 128, 1, 1),
        (1, 256, 28, 256, 1, 1), (1, 256, 14, 512, 1, 1), (4, 32, 28, 32, 1, 1), (1, 64, 28, 64, 64, 1),
    ]  # fmt: skip
    for n, channels, side, filters, groups, deform_groups in [(1, 4, 8, 4, 1, 1)] if smallest else sizes:
        for dtype in ("float32", "float64", "float16"):
            inputs = (
                torch.randn(n, channels, side, side, dtype=torch.float64),
                2 * torch.randn(n, 18 * deform_groups, side, side, dtype=torch.float64),
                torch.rand(n, 9 * deform_groups, side, side, dtype=torch.float64),
                torch.randn(filters, channels // groups, 3, 3, dtype=torch.float64),
                torch.randn(filters, dtype=torch.float64),
            )
            yield Row(
                label=f"deform_conv {n}x{channels}x{side}x{side} to {filters} groups {groups}, {deform_groups}",
                dtype=dtype,
                inputs=inputs,
                original=lambda x, offset, mask, weight, bias: torchvision.ops.deform_conv2d(
                    x, offset, weight, bias, padding=1, mask=mask
                ),
                example=lambda *inputs, groups=groups, deform_groups=deform_groups: example(
                    *inputs, [1, 1], [1, 1], [1, 1], groups, deform_groups
                ),
            )


ROWS = {
    "causal_conv1d": causal_conv1d_rows,
    "roi_align": roi_align_rows,
    "modulated_deform_conv": modulated_deform_conv_rows,
}


def measure(row: Row, *, threads: int, seconds: float) -> str:
    """Return a row of the table."""
    import torch

    torch.set_num_threads(threads)
    dtype = getattr(torch, row.dtype)
    # Truth is computed for the values that the dtype has.
    given = [value.to(dtype) if isinstance(value, torch.Tensor) else value for value in row.inputs]
    widened = [value.to(torch.float64) if isinstance(value, torch.Tensor) else value for value in given]
    errors = relative_errors(row, given, widened)
    clock = time.thread_time if threads == 1 else time.perf_counter
    pairs: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(pairs) < LEAST_PAIRS or time.perf_counter() < end:
        times = []
        for function in (row.original, row.example):
            begin = clock()
            function(*given)
            times.append(clock() - begin)
        pairs.append((times[0], times[1]))
    ratios = sorted(example / original for original, example in pairs)
    low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
    original, example = (1e6 * statistics.median(column) for column in zip(*pairs, strict=True))
    return (
        f"{f'{row.label} {row.dtype}':58} {threads:7} {original:10.0f} {example:10.0f} "
        f"{statistics.median(ratios):6.2f} {f'({low:.2f} to {high:.2f})':>14} {errors:>17} "
        f"{scaling(row, given, threads, seconds=seconds) if threads > 1 else '-':>7}"
    )


def scaling(row: Row, given: list[Any], threads: int, *, seconds: float) -> str:
    """Return the gain of the example by threads, divided by that of a loop that is bound as it is."""
    import torch

    found = row.example(*given)
    moved = [value for value in (*given, *(found if isinstance(found, tuple) else (found,))) if torch.is_tensor(value)]
    source = torch.rand(sum(value.nbytes for value in moved) // 8)  # a copy reads and writes 4 bytes of each
    gains = scaled(
        lambda: row.example(*given), partial(torch.empty_like(source).copy_, source), torch.set_num_threads, threads,
        elements=moved[-1].numel(), seconds=seconds,
    )  # fmt: skip
    torch.set_num_threads(threads)
    return f"{statistics.median(gains):.2f}"


def relative_errors(row: Row, given: list[Any], widened: list[Any]) -> str:
    """Call both once; return the errors of the original and of the example. All outputs of both must be finite."""
    found = [returned if isinstance(returned, tuple) else (returned,) for returned in (
        row.original(*widened), row.original(*given), row.example(*given))]  # fmt: skip
    truth, original, example = ([tensor.double() for tensor in tensors] for tensors in found)
    if row.dtype == "float64":
        return f"{largest(example, original):.1e}"
    return f"{largest(original, truth):.1e} {largest(example, truth):.1e}"


def largest(tensors: list[Any], truth: list[Any]) -> float:
    errors = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(tensors, truth, strict=True) if b.numel()]
    if not all(error < 0.1 for error in errors):
        sys.exit(f"the two results differ by {max(errors)} of the largest; nothing is measured")
    return max(errors)


def run(options: argparse.Namespace) -> None:
    """Measure the operators in this process, by the libraries in options.libraries."""
    import torch

    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}; microseconds of a call\n{HEAD}")
    for name in options.only:
        torch.ops.load_library(options.libraries / PROJECTS[name] / f"build/compile/{name}/lib{name}_torch.so")
        try:
            rows = list(ROWS[name](smallest=options.smallest))
        except ModuleNotFoundError as err:
            print(f"{name}: not measured, because {err.name} is not installed; --python names a Python that has it")
            continue
        for threads in options.threads:
            for row in rows:
                print(measure(row, threads=threads, seconds=options.seconds), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="with torch and torchvision")
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="OPERATOR")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--seconds", type=float, default=2, help="of each row")
    parser.add_argument("--smallest", action="store_true", help="tiny tensors, a few calls: what a test runs")
    parser.add_argument("--libraries", type=Path, help="projects that are built already")
    options = parser.parse_args()
    if options.libraries:
        run(options)
        return 0
    if options.smallest:
        options.seconds = 0
    with tempfile.TemporaryDirectory() as folder:
        build(options.only, Path(folder))
        command = [str(options.python), str(Path(__file__).resolve()), "--libraries", folder, "--only", *options.only]
        command += ["--threads", *map(str, options.threads), "--seconds", str(options.seconds)]
        return subprocess.run(command + ["--smallest"] * options.smallest).returncode


if __name__ == "__main__":
    sys.exit(main())
