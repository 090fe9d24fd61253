"""How fast are the example operators, compared with the kernels that people have today?

    ./run python benchmarks/kernels.py                        all operators, 15 minutes
    ./run python benchmarks/kernels.py group_norm --threads 1
    ./run python benchmarks/kernels.py group_norm --threads 1 --level 3   operators and torch at x86-64-v3, AVX2
    ./run python benchmarks/kernels.py --plot docs/images     also draws the ratios, by the number of elements

The operators are compiled from the working tree, in a folder of their own. Each part is a process in which an operator
and its peers alternate (A B C A B C ...), on the same inputs: group_norm and torch.nn.functional.group_norm; nms and
torchvision.ops.nms or batched_nms, and in ONNX Runtime its NonMaxSuppression; dual_residual and the expression in
torch. Ratios are to the peer in the same round, below 1 is faster: the median, and in brackets the range of the middle
80%. With one thread, times are CPU time of the thread; with two, of the clock. The process keeps memory that was freed,
so that no call pays for new pages.

`copy` is the ratio to torch's copy of as many bytes as the operator must read and write. `floor` is the ratio to
peer/kernels_floor.cc, with one thread: for group_norm, two plain passes over each group with sums in float that nothing
makes accurate, and without prefetching, so that a row can be faster; for nms in ONNX Runtime, a custom op that computes
nothing, with the same inputs and the output that is timed. `errors` are the largest of the operator and of the peer,
from the formula in numpy.longdouble, in the first sample; for nms, how many are kept.
`scaling` is by how much two threads are faster than one, divided by the same of a loop that is bound as the row is: the
copy, where the row takes at most 3 times as long with one thread, or an exponential in the cache.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import measuring
import plot

DTYPES = ("float32", "float64", "float16", "bfloat16")
SHAPES = (
    ((64, 1024), 32), ((8, 512, 2, 2), 32), ((8, 512, 4, 4), 32), ((1, 8, 4, 5), 4), ((1, 256, 14, 14), 32),
    ((8, 64, 56, 56), 32), ((2, 320, 64, 64), 32), ((8, 256, 64, 64), 32),
)  # fmt: skip
MEANS = (0.0, 1.0, 1000.0)
COUNTS = (1, 10, 100, 1000, 5000, 30000)
FLOOR = measuring.ROOT / "benchmarks/peer/kernels_floor.cc"
LEVELS = {"2": "default", "3": "avx2", "4": "avx512"}  # of x86-64: torch's names
SIZES = (1000, 30_000, 1_000_000, 8_000_000)
Call = Callable[[], Any]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one row of the table measures. `moved`: bytes that the operator must read and write."""

    name: str
    ours: Call
    peer: Call | None
    copy: Call | None = None
    floor: Call | None = None
    elements: int
    moved: int
    check: Callable[[], str]


@dataclass(frozen=True, kw_only=True)
class Result:
    """A row as it was measured. Ratios are those of all rounds."""

    part: str
    name: str
    threads: int
    elements: int
    seconds: float
    gigabytes: float
    peer: list[float] = field(default_factory=list)
    copy: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    scaling: list[float] = field(default_factory=list)
    check: str = ""

    def __str__(self) -> str:
        shown = [f"{self.name:<34} {self.threads} {self.seconds * 1e6:10.1f} {self.gigabytes:6.1f}"]
        shown += [brackets(ratios) for ratios in (self.peer, self.copy, self.floor, self.scaling)]
        return "  ".join([*shown, self.check]).rstrip()


HEAD = (
    f"{'':<34} n  {'us':>9} {'GB/s':>6}  {'peer':<16}  {'copy':<16}  {'floor':<16}  {'scaling':<16}  errors: ours, peer"
)


def brackets(ratios: Sequence[float]) -> str:
    if not ratios:
        return f"{'-':<16}"
    found = sorted(ratios)
    low, high = found[len(found) // 10], found[-1 - len(found) // 10]
    return f"{statistics.median(found):5.2f} ({low:.2f}-{high:.2f})"


def alternate(calls: Sequence[Call], clock: Callable[[], int], *, seconds: float) -> list[list[float]]:
    """Return the seconds of each call in each round."""
    for call in calls:
        call()
    start = clock()
    for call in calls:
        call()
    once = max((clock() - start) / len(calls), 1)
    times = max(1, int(100_000 / once))  # calls in a row, for a round of 0.1 ms or more
    rounds = max(3, min(100, int(seconds * 1e9 / (times * once * len(calls)))))
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, measured in zip(calls, found, strict=True):
            start = clock()
            for _ in range(times):
                call()
            measured.append((clock() - start) / times / 1e9)
    return found


def ratios(ours: Sequence[float], other: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(ours, other, strict=True)]


def keep_memory() -> None:
    """Let glibc take large blocks from its heap, and return none of it to the system."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(-4, 0)  # M_MMAP_MAX
    mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD


def measure(part: str, rows: Iterator[Row], *, seconds: float, threads: int, set_threads: Any) -> Iterator[Result]:
    """Measure the rows of a part. With two threads, one is measured in the same rounds, where it can be set."""
    keep_memory()
    for row in rows:
        others = {"peer": row.peer, "copy": row.copy, "floor": row.floor}
        timed = {name: call for name, call in others.items() if call is not None}
        clock = time.perf_counter_ns if threads > 1 else time.thread_time_ns
        scaling: list[float] = []
        if threads > 1 and set_threads is not None:
            set_threads(threads)
            scaling = scaled(row.ours, row.copy, set_threads, threads, elements=row.elements, seconds=seconds)
            set_threads(threads)
        ours, *found = alternate((row.ours, *timed.values()), clock, seconds=seconds)
        middle = statistics.median(ours)
        yield Result(
            part=part, name=row.name, threads=threads, elements=row.elements, seconds=middle,
            gigabytes=row.moved / middle / 1e9,
            scaling=scaling, check=row.check(),
            **{name: ratios(ours, other) for name, other in zip(timed, found, strict=True)},
        )  # fmt: skip


def scaled(
    ours: Call, copy: Call | None, set_threads: Any, threads: int, *, elements: int, seconds: float
) -> list[float]:
    """Return how much the operator gains by threads, divided by the gain of a loop that is bound as it is.

    `copy` copies as many bytes as the operator must move. The other loop has as many elements, so that it is split as
    the operator is, fits the cache, and is repeated until it takes as long.
    """
    import torch

    def with_threads(number: int, call: Call) -> Call:
        def called() -> None:
            set_threads(number)
            call()

        return called

    def times(call: Call) -> float:
        """Return how many times as long as `call` the operator takes."""
        return statistics.median(ratios(*alternate((ours, call), time.perf_counter_ns, seconds=seconds / 10)))

    set_threads(1)
    if copy is not None and times(copy) <= 3:
        loop = copy
    else:
        exponential = partial(torch.exp, torch.rand(min(elements, 1 << 16)))
        repeated = range(max(1, round(times(exponential))))  # to be as long as the operator

        def loop() -> None:
            for _ in repeated:
                exponential()

    calls = [with_threads(number, call) for call in (ours, loop) for number in (1, threads)]
    one, more, loop_one, loop_more = alternate(calls, time.perf_counter_ns, seconds=seconds)
    return [a / b / (c / d) for a, b, c, d in zip(one, more, loop_one, loop_more, strict=True)]


# The parts. Each imports what it needs, in its own process.


def group_norm(build: Path, *, floor: Path | None, smallest: bool, threads: int) -> Iterator[Row]:
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    torch.ops.load_library(library(build, "group_norm"))
    operator = torch.ops.mynamespace.custom_group_norm
    floors = ctypes.CDLL(str(floor)) if floor else None
    for shape, groups in SHAPES[3:4] if smallest else SHAPES:
        for name in DTYPES[:1] if smallest else DTYPES:
            torch.manual_seed(0)
            dtype = getattr(torch, name)
            x, scale, bias = (torch.randn(size).to(dtype) for size in (shape, shape[1], shape[1]))
            number, out = torch.tensor([float(groups)]), torch.empty_like(x)
            count = x.numel() // (shape[0] * groups)  # in a group

            yield Row(
                name=f"{'x'.join(map(str, shape))} {name}",
                ours=partial(operator, x, number, scale, bias, EPSILON),
                peer=partial(functional.group_norm, x, groups, scale, bias, EPSILON),
                copy=partial(out.copy_, x),
                floor=partial(
                    getattr(floors, name), ctypes.c_void_p(x.data_ptr()), ctypes.c_int64(shape[0] * groups),
                    ctypes.c_int64(count), ctypes.c_bool(out.nbytes > PAST), ctypes.c_void_p(out.data_ptr()),
                ) if floors and count % FLOOR_STEP == 0 else None,
                elements=x.numel(), moved=2 * x.nbytes,
                check=partial(errors_at_means, x[:1], groups, scale, bias),
            )  # fmt: skip


EPSILON = 2.0**-17  # a float of ONNX and a double are equal
PAST = 1 << 25  # bytes of an output, beyond which group_norm writes past the cache
FLOOR_STEP = 32  # the floor has no loop for what is left of a group: two vectors of float, at most


def errors_at_means(x: Any, groups: int, scale: Any, bias: Any) -> str:
    """Return the largest errors of the operator and of torch, with x moved to other means."""
    import torch

    number, found = torch.tensor([float(groups)]), []
    for mean in MEANS:
        moved = (x.double() + mean).to(x.dtype)
        truth = exact(moved, groups, scale, bias)
        ours = torch.ops.mynamespace.custom_group_norm(moved, number, scale, bias, EPSILON)
        peer = torch.nn.functional.group_norm(moved, groups, scale, bias, EPSILON)
        found.append(f"mean {mean:g}: {error(ours, truth):.1e} {error(peer, truth):.1e}")
    return ", ".join(found)


def exact(x: Any, groups: int, scale: Any, bias: Any) -> Any:
    """Return group normalization in numpy.longdouble."""
    import numpy as np

    across = (1, -1) + (1,) * (x.dim() - 2)
    wide = [value.double().numpy().astype(np.longdouble) for value in (x, scale, bias)]
    centered = wide[0].reshape(x.shape[0], groups, -1)
    for _ in range(2):
        centered = centered - centered.mean(axis=-1, keepdims=True)
    normal = centered / np.sqrt(np.square(centered).mean(axis=-1, keepdims=True) + np.longdouble(EPSILON))
    return normal.reshape(x.shape) * wide[1].reshape(across) + wide[2].reshape(across)


def error(found: Any, truth: Any) -> float:
    return float(abs(found.double().numpy() - truth).max())


def dual_residual(build: Path, *, floor: Path | None, smallest: bool, threads: int) -> Iterator[Row]:
    import torch

    torch.set_num_threads(threads)
    torch.ops.load_library(library(build, "dual_residual"))
    operator = torch.ops.cst.dual_residual
    for size in SIZES[:1] if smallest else SIZES:
        for name in DTYPES[:1] if smallest else DTYPES:
            torch.manual_seed(0)
            both = torch.randn(2, size).to(getattr(torch, name))
            x, y, out = both[0], both[1], torch.empty_like(both)

            yield Row(
                name=f"{size} {name}",
                ours=partial(operator, x, y, ALPHA),
                peer=partial(in_torch, x, y),
                copy=partial(out.copy_, both),
                elements=size, moved=2 * both.nbytes, check=partial(errors_of_residuals, x[:100_000], y[:100_000]),
            )  # fmt: skip


ALPHA = 1.703125  # a float of ONNX and a double are equal


def in_torch(x: Any, y: Any) -> tuple[Any, Any]:
    return ALPHA * x - y, ALPHA * y - x


def errors_of_residuals(x: Any, y: Any) -> str:
    import numpy as np
    import torch

    a, b = (value.double().numpy().astype(np.longdouble) for value in (x, y))
    truth = np.longdouble(ALPHA) * a - b
    both = (torch.ops.cst.dual_residual(x, y, ALPHA), in_torch(x, y))
    return " ".join(f"{error(found[0], truth):.1e}" for found in both)


def boxes(count: int, *, crowded: bool) -> tuple[Any, Any, Any]:
    """Return boxes of 5 to 45 pixels, their scores, and one of 80 classes of each; crowded: as many on a tenth."""
    import numpy as np

    random = np.random.default_rng(count)
    side = 30 * count**0.5 / (10**0.5 if crowded else 1)
    corner = random.uniform(0, side, (count, 2))
    found = np.concatenate((corner, corner + random.uniform(5, 45, (count, 2))), axis=1).astype(np.float32)
    return found, random.uniform(0.1, 1, count).astype(np.float32), random.integers(0, 80, count)


def kinds(smallest: bool) -> Iterator[tuple[str, int, bool, bool]]:
    """Yield name, number of boxes, whether they are crowded, whether they have classes."""
    for count in COUNTS[:2] if smallest else COUNTS:
        for crowded in (False,) if smallest or count < 1000 else (False, True):
            for classes in (False, True):
                yield f"{count}{' crowded' * crowded}{', 80 classes' * classes}", count, crowded, classes


def nms_torch(build: Path, *, floor: Path | None, smallest: bool, threads: int) -> Iterator[Row]:
    import torch

    torch.set_num_threads(threads)
    torch.ops.load_library(library(build, "nms"))
    operator = torch.ops.opmatrix.nms
    try:
        from torchvision import ops
    except Exception as missing:
        print(f"torchvision cannot be imported, so it is not measured: {str(missing).splitlines()[0]}", flush=True)
        ops = None
    for name, count, crowded, classes in kinds(smallest):
        b, s, c = map(torch.from_numpy, boxes(count, crowded=crowded))

        ours = partial(operator, b, s, c if classes else None, None, [], 0.5, 0.0, 0)
        peer: Call | None = None
        if ops:
            peer = partial(ops.batched_nms, b, s, c, 0.5) if classes else partial(ops.nms, b, s, 0.5)
        moved = b.nbytes + s.nbytes
        yield Row(name=name, ours=ours, peer=peer, elements=count, moved=moved, check=partial(kept, ours, peer))


def kept(ours: Call, peer: Call | None) -> str:
    """Return how many boxes are kept; outputs are tensors, or lists of which the first has a row for each."""
    found = [call() for call in (ours, peer) if call is not None]
    return " ".join(["kept", *(str(len(one[0] if isinstance(one, tuple | list) else one)) for one in found)])


def nms_ort(build: Path, *, floor: Path | None, smallest: bool, threads: int) -> Iterator[Row]:
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper

    def session(node: Any, inputs: Mapping[str, Any], constants: Sequence[Any] = (), *, own: str = "") -> Any:
        kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
        into = [helper.make_tensor_value_info(k, kinds[v.dtype], v.shape) for k, v in inputs.items()]
        out = [helper.make_tensor_value_info(k, 0, None) for k in node.output]
        for value in out:
            value.ClearField("type")
        graph = helper.make_graph([node], "nms", into, out, constants)
        imports = [helper.make_opsetid("", 11), *([helper.make_opsetid(node.domain, 1)] if node.domain else [])]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        if own:
            options.register_custom_ops_library(own)
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    for name, count, crowded, classes in kinds(smallest):
        b, s, c = boxes(count, crowded=crowded)
        feeds = {"boxes": b, "scores": s} | ({"classes": c} if classes else {})
        given = ["boxes", "scores", "classes" if classes else "", ""]
        node = helper.make_node("NonMaximumSuppression", given, ["indices"], domain="opmatrix")
        own = session(node, feeds, own=library(build, "nms", "ort"))
        nothing = None
        if floor:
            node = helper.make_node("Nothing", [*feeds], node.output, domain="floor")
            nothing = partial(session(node, feeds, own=str(floor)).run, ["indices"], feeds)
        # One row of scores for each class; a score of 0 is not above the threshold.
        rows = np.zeros((1, 80 if classes else 1, count), np.float32)
        rows[0, c if classes else 0, np.arange(count)] = s
        theirs = {"boxes": b[None], "scores": rows}
        limits = [
            helper.make_tensor("most", TensorProto.INT64, [1], [2**31 - 1]),
            helper.make_tensor("iou", TensorProto.FLOAT, [1], [0.5]),
            helper.make_tensor("score", TensorProto.FLOAT, [1], [0.0]),
        ]
        node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "score"], ["selected"])
        other = session(node, theirs, limits)

        ours, peer = partial(own.run, ["indices"], feeds), partial(other.run, None, theirs)
        moved = b.nbytes + s.nbytes
        yield Row(
            name=name, ours=ours, peer=peer, floor=nothing, elements=count, moved=moved, check=partial(kept, ours, peer)
        )  # fmt: skip


PARTS: Mapping[str, tuple[str, Callable[..., Iterator[Row]]]] = {
    "group_norm": ("torch.nn.functional.group_norm", group_norm),
    "nms_torch": ("torchvision.ops.nms and batched_nms", nms_torch),
    "nms_ort": ("NonMaxSuppression of ONNX Runtime", nms_ort),
    "dual_residual": ("(alpha * x - y, alpha * y - x) in torch", dual_residual),
}
OPERATORS = ("group_norm", "nms", "dual_residual")
WITH_FLOOR = {"group_norm", "nms_ort"}


def library(build: Path, name: str, runtime: str = "torch") -> str:
    return str(build / "compile" / name / f"lib{name}_{runtime}.so")


def compiled(folder: Path, names: Sequence[str]) -> Path:
    """Compile operators of the working tree in `folder`, and return the build folder."""
    project = measuring.copy_project(folder)
    command = [*measuring.DOIT, *(f"compile:{name}" for name in names)]
    done = subprocess.run(command, cwd=project, env=measuring.environment(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"kernels.py: the operators do not compile:\n{done.stdout}{done.stderr}")
    return project / "build"


def compiled_floor(folder: Path, build: Path) -> Path:
    """Compile peer/kernels_floor.cc for this processor, with the headers of ONNX Runtime that the build used."""
    from opmatrix.toolchain.find import find_compiler  # a Python with torchvision need not have opmatrix

    places = next((build / "compile").glob("*/places.ninja")).read_text()
    headers, made = places.split("ort_include = ")[1].splitlines()[0], folder / "floor.so"
    command = [*find_compiler(os.environ), "-std=c++20", "-O2", "-ftree-vectorize", "-ffp-contract=fast", "-Wno-psabi"]
    command += ["-march=native", "-fPIC", "-shared", "-fvisibility=hidden", "-isystem", headers]
    command += [f"-I{measuring.ROOT / 'native/include'}", str(FLOOR), "-o", str(made)]
    subprocess.run(command, check=True)
    return made


def run_part(name: str, build: Path, *, floor: Path | None, smallest: bool, threads: int, seconds: float) -> None:
    """Print a line of JSON for each row; the body of a process of its own."""
    set_threads = None
    if name != "nms_ort":
        import torch

        set_threads = torch.set_num_threads
    rows = PARTS[name][1](build, floor=floor, smallest=smallest, threads=threads)
    for result in measure(name, rows, seconds=seconds, threads=threads, set_threads=set_threads):
        print(json.dumps(asdict(result)), flush=True)


def measured(
    name: str, build: Path, *, floor: Path | None, smallest: bool, threads: int, seconds: float
) -> Iterator[Result]:
    """Run a part in a process of its own, and print its rows as they come."""
    options = ["--smallest"] if smallest else []
    command = [sys.executable, __file__, "--part", name, "--build", str(build), "--seconds", str(seconds), *options]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command += ["--threads", str(threads), *(["--floor", str(floor)] if floor and threads == 1 else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        for line in child.stdout or ():
            if not line.startswith("{"):
                print(line, end="", flush=True)
                continue
            result = Result(**json.loads(line))
            print(result, flush=True)
            yield result
    if child.returncode:
        sys.exit(f"kernels.py: {name} failed")


def draw(folder: Path, results: Sequence[Result]) -> None:
    """Draw the ratios to the peer with one thread, by the logarithm of the number of elements."""
    from math import log10

    folder.mkdir(parents=True, exist_ok=True)
    for name, (peer, _) in PARTS.items():
        lines: dict[str, list[tuple[float, float]]] = {}
        for result in results:
            if result.part == name and result.threads == 1 and result.peer:
                kind = result.name.partition(" ")[2] or "boxes"
                lines.setdefault(kind, []).append((log10(max(result.elements, 1)), statistics.median(result.peer)))
        if lines:
            title = f"{name.split('_torch')[0].split('_ort')[0]}: time as a share of {peer}, by log10 of elements"
            (folder / f"kernels-{name.replace('_', '-')}.svg").write_text(plot.render(title, lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; without, all")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--level", choices=LEVELS, help="of x86-64, for operators and torch; default: the processor's")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each row")
    parser.add_argument("--plot", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all ratios")
    parser.add_argument("--smallest", action="store_true", help="a row of each part, one thread: what a test runs")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--floor", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--build", type=Path, metavar="FOLDER", help="do not compile: use the operators of a build folder"
    )
    options = parser.parse_args()
    seconds = 0.01 if options.smallest else options.seconds
    if options.part:
        run_part(
            options.part, options.build, floor=options.floor, smallest=options.smallest, threads=options.threads[0],
            seconds=seconds,
        )  # fmt: skip
        return 0
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}. Parts are {', '.join(PARTS)}")
    if options.level:
        os.environ |= {"OPMATRIX_CPU_LEVEL": options.level, "ATEN_CPU_CAPABILITY": LEVELS[options.level]}
    parts = options.parts or list(PARTS)
    names = [name for name in OPERATORS if any(part.startswith(name) for part in parts)]
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        build = options.build or compiled(Path(folder), names)
        floor = compiled_floor(Path(folder), build) if WITH_FLOOR & {*parts} else None
        for part in parts:
            print(f"\n{part}: peer is {PARTS[part][0]}\n{HEAD}", flush=True)
            for threads in [1] if options.smallest else options.threads:
                results += measured(
                    part, build, floor=floor, smallest=options.smallest, threads=threads, seconds=seconds
                )
    print()
    for part in parts:
        rows = [result for result in results if result.part == part and result.peer and result.threads == 1]
        if rows:
            worst = max(rows, key=lambda result: statistics.median(result.peer))
            below = sum(statistics.median(result.peer) <= 1 for result in rows)
            print(f"{part}: {below} of {len(rows)} rows at most 1.0, the slowest {brackets(worst.peer)}: {worst.name}")
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results]))
    if options.plot:
        draw(options.plot, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
