"""Is `opmatrix check` right about models of others, and does it find a planted fault?

    ./run python benchmarks/check_models.py
    ./run python benchmarks/check_models.py --wheels FOLDER
    ./run python benchmarks/check_models.py --sample 24
    ./run python benchmarks/check_models.py --lines now.tsv --since before.tsv

The models are those in the wheels that benchmarks/models.txt pins, which pip downloads into build/check-models, or
which are in FOLDER: ONNX's backend test data, with expected outputs, and those of rapidocr-onnxruntime, magika and
silero-vad, without. With --sample, so many of those that the installed onnx has, and nothing is downloaded.
The tolerance is that of ONNX's own backend tests, rtol=1e-3. The outcomes are those of docs/check.md; CPU seconds count
all processes.

With --lines the outcome of each model is written to a file; with --since those that differ from such a file, as of
another revision, are printed.

Then one fault is planted in each of 60 models, which the check calls right without it:

- attribute: a number among the attributes of a node is another one
- weight: a number in a constant is larger than its largest
- opset: the model imports opset 1 of ONNX
- kernel: a node is of an operator that no library has

A change after which ONNX Runtime computes the same outputs is no fault, and not counted.
A fault is found if the model is no longer right, and named if the line has the node that was changed; for an opset, if
it has a node that this opset does not have, or has otherwise. A model with a data set is checked with that, any other
one --against itself before. The exit code is 1 if fewer than 95 % are found and named.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from measuring import ROOT, cpu_of_children, environment
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, numpy_helper

OUTCOMES = ("right", "wrong", "disagree", "unknown", "unsupported", "unreadable")
PINS = ROOT / "benchmarks/models.txt"
LINE = re.compile(rf"^\S+ ({'|'.join(OUTCOMES)}) +(.*?): (.*)$")
# The wheels are those for CPython 3.11, whichever Python runs this.
PLATFORM = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "abi3", "--abi", "none")
TAGS = [w for tag in ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "any") for w in ("--platform", tag)]
Fault = Callable[[ModelProto], list[str]]
"""Changes a model, and returns the names of the nodes that the change concerns, none where it has no such place."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """What `opmatrix check` prints of one model."""

    outcome: str
    model: Path
    reason: str


def check(models: Sequence[Path], *options: str, folder: Path) -> list[Line]:
    """Run `opmatrix check` once, in a folder without a project."""
    folder.mkdir(parents=True, exist_ok=True)
    program = "import sys; from opmatrix.commands.main import main; sys.exit(main())"
    paths = os.pathsep.join(filter(None, [str(ROOT / "pipeline"), os.environ.get("PYTHONPATH", "")]))
    given = [str(m) for m in models]
    if len(models) == 1:  # one alone gets no line but its findings, so it is given by two names
        given.append(f"{models[0].parent}/./{models[0].name}")
    done = subprocess.run(
        [sys.executable, "-c", program, "check", *given, *options],
        cwd=folder,
        env={**environment(), "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    lines = [Line(outcome=m[1], model=Path(m[2]), reason=m[3]) for m in map(LINE.match, done.stdout.splitlines()) if m]
    found = [*{line.model: line for line in lines}.values()]
    if len(found) != len(models):
        sys.exit(f"opmatrix check printed {len(found)} lines for {len(models)} models:\n{done.stdout}{done.stderr}")
    return found


def unpacked(wheels: Path | None, into: Path) -> dict[str, list[Path]]:
    """Return the models of each wheel, downloaded if `wheels` is no folder of them."""
    if wheels is None:
        wheels = into / "wheels"
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
        subprocess.run([*pip, "-q", *PLATFORM, *TAGS, "-r", str(PINS), "-d", str(wheels)], check=True)
    found = {}
    for path in sorted(wheels.glob("*.whl")):
        name = "-".join(path.name.split("-")[:2])
        if not (folder := into / name).is_dir():
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder.with_suffix(".part"))
            folder.with_suffix(".part").rename(folder)
        models = sorted(p for p in folder.rglob("*.onnx") if "light" not in p.parts)
        found[name] = models
    return found


def of_installed(count: int) -> dict[str, list[Path]]:
    """Return so many models of the installed onnx, evenly chosen."""
    data = Path(onnx.__file__).parent / "backend/test/data"
    models = sorted(p for p in data.rglob("model.onnx") if "light" not in p.parts)
    return {f"onnx {onnx.__version__}": models[:: max(1, len(models) // count)][:count]}


def print_table(groups: dict[str, list[Line]], seconds: dict[str, float]) -> None:
    print(f"{'':32} {'models':>7} " + " ".join(f"{o:>11}" for o in OUTCOMES[:5]) + f" {'CPU s':>7}")
    for name, lines in groups.items():
        counts = Counter(line.outcome for line in lines)
        row = " ".join(f"{counts[o]:>11}" for o in OUTCOMES[:5])
        print(f"{name:32} {len(lines):>7} {row} {seconds[name]:>7.1f}")
    print()
    for name, lines in groups.items():
        for line in lines:
            if line.outcome in ("wrong", "disagree", "unreadable"):
                print(f"{line.outcome:>11}  {name}/{shown(line.model)}: {line.reason[:110]}")
    print()


def shown(model: Path) -> str:
    return model.parent.name if model.stem == "model" else model.name


def attribute(model: ModelProto) -> list[str]:
    """Change the first number among the attributes, else the first choice."""
    for node in nodes(model):
        for found in node.attribute:
            if found.type == AttributeProto.FLOAT:
                found.f = 2 * found.f + 0.5
                return [label(node)]
            if (
                found.type == AttributeProto.INTS
                and found.ints
                and found.name in ("pads", "perm", "strides", "dilations")
            ):
                values = [*found.ints]
                found.ints[:] = values[::-1] if values[::-1] != values else [v + 1 for v in values]
                return [label(node)]
            if found.type == AttributeProto.INT and found.name in ("axis", "transA", "transB", "keepdims", "group"):
                found.i = 1 - found.i if found.i in (0, 1) else found.i + 1
                return [label(node)]
    return []


def weight(model: ModelProto) -> list[str]:
    """Change the middle number of the first floating constant that a node takes."""
    for node in nodes(model):
        for constant in model.graph.initializer:
            if constant.name in node.input and constant.data_type in (1, 10, 11):
                array = numpy_helper.to_array(constant).copy()
                if not array.size:
                    continue
                array.flat[array.size // 2] = np.abs(array).max() * 1.1 + 1
                constant.CopyFrom(numpy_helper.from_array(array, constant.name))
                return [label(node)]
    return []


def opset(model: ModelProto) -> list[str]:
    """Import opset 1 of ONNX, and return the nodes of which it has no version, or another one."""
    for found in model.opset_import:
        if found.domain in ("", "ai.onnx") and found.version > 1:
            changed = [label(n) for n in walk(model.graph) if since(n, 1) != since(n, found.version)]
            found.version = 1
            return changed
    return []


def since(node: NodeProto, version: int) -> int:
    """Return the version of a node's operator in an opset, 0 for none."""
    try:
        return int(onnx.defs.get_schema(node.op_type, version, "").since_version)
    except onnx.defs.SchemaError:
        return 0


def kernel(model: ModelProto) -> list[str]:
    """Give the middle node to a domain that no library has."""
    every = nodes(model)
    if not every:
        return []
    node = every[len(every) // 2]
    node.domain = "com.example"
    model.opset_import.add(domain="com.example", version=1)
    return [label(node)]


FAULTS: dict[str, Fault] = {"attribute": attribute, "weight": weight, "opset": opset, "kernel": kernel}


def nodes(model: ModelProto) -> list[NodeProto]:
    return [n for n in model.graph.node if n.op_type != "Constant"]


def walk(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph and of its branches and bodies."""
    for node in graph.node:
        yield node
        for found in node.attribute:
            for inner in (found.g, *found.graphs):
                yield from walk(inner)


def label(node: NodeProto) -> str:
    """Return how a message names a node: by its name, or by its first output."""
    return node.name or next(iter(node.output), "")


def has_effect(original: Path, changed: Path) -> bool:
    """Return whether ONNX Runtime computes other outputs from the model's data set, or refuses the changed model: a
    change of a weight that only meets padding is no fault. Without a data set, each change counts."""
    data = original.parent / "test_data_set_0"
    if not data.is_dir():
        return True
    try:
        before, after = (outputs(model, data) for model in (original, changed))
    except Exception:  # onnxruntime's errors have no common class
        return True
    return not all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(before, after, strict=True))


def outputs(model: Path, data: Path) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(model), options)
    feeds = {}
    for index, value in enumerate(session.get_inputs()):
        tensor = onnx.TensorProto.FromString((data / f"input_{index}.pb").read_bytes())
        feeds[value.name] = numpy_helper.to_array(tensor)
    return [np.asarray(found) for found in session.run(None, feeds)]


def planted(models: Sequence[Path], count: int, into: Path) -> Iterator[tuple[str, list[str], Path, Path]]:
    """Yield kind, names of nodes, model and original of so many models with a fault, of all kinds in turn."""
    shutil.rmtree(into, ignore_errors=True)
    kinds = [*FAULTS]
    made = 0
    remaining = list(models)
    while made < count and kinds:
        kind = kinds[made % len(kinds)]
        folder = into / f"{made:02}-{kind}"
        for original in remaining:
            if named := plant(kind, original, folder):
                break
        else:
            kinds.remove(kind)
            continue
        remaining.remove(original)
        made += 1
        yield kind, named, folder / original.name, original


def plant(kind: str, original: Path, folder: Path) -> list[str]:
    """Write the changed model with its data sets, and return the names of the nodes, none if it has no effect."""
    model = onnx.load(original)
    if not (named := FAULTS[kind](model)):
        return []
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    onnx.save(model, folder / original.name)
    for data in original.parent.glob("test_data_set_*"):
        shutil.copytree(data, folder / data.name)
    return named if has_effect(original, folder / original.name) else []


def is_named(named: Sequence[str], reason: str) -> bool:
    """Return whether a line names one of the nodes."""
    return any(re.search(rf"(?<![\w/.]){re.escape(name)}(?![\w/.])", reason) for name in named)


def spread(lines: Sequence[Line]) -> list[Path]:
    """Return the right models: first those without a data set, twice, then the others in an order without meaning."""
    right = [line.model for line in lines if line.outcome == "right"]
    large = [m for m in right if not any(m.parent.glob("test_data_set_*"))]
    small = [m for m in right if m not in large]
    return [*large, *large, *sorted(small, key=lambda m: hashlib.sha256(m.parent.name.encode()).digest())]


def check_faults(lines: Sequence[Line], count: int, into: Path, options: Sequence[str]) -> bool:
    """Plant the faults, print what is found, and return whether 95 % are found and named."""
    began = cpu_of_children()
    every = list(planted(spread(lines), count, into))
    results: dict[Path, Line] = {}
    with_data = [model for _, _, model, original in every if any(original.parent.glob("test_data_set_*"))]
    if with_data:
        results |= {line.model: line for line in check(with_data, *options, folder=into)}
    for original in dict.fromkeys(o for _, _, m, o in every if m not in with_data):
        changed = [m for _, _, m, o in every if o == original]
        against = ("--against", str(original))
        results |= {line.model: line for line in check(changed, *options, *against, folder=into)}
    found: Counter[str] = Counter()
    both: Counter[str] = Counter()
    for kind, named, model, original in every:
        line = results[model]
        missed = line.outcome not in ("wrong", "unsupported")
        found[kind] += not missed
        both[kind] += not missed and is_named(named, line.reason)
        if missed or not is_named(named, line.reason):
            what = "not found" if missed else "not named"
            print(f"{what:>11}  {model.parent.name} {shown(original)}, {named[0]}: {line.reason[:110]}")
    total = Counter(kind for kind, *_ in every)
    print(f"{'fault':12} {'planted':>8} {'found':>8} {'and named':>10}")
    for kind in FAULTS:
        print(f"{kind:12} {total[kind]:>8} {found[kind]:>8} {both[kind]:>10}")
    print(f"{'all':12} {total.total():>8} {found.total():>8} {both.total():>10}", end="")
    print(f"   {cpu_of_children() - began:.1f} CPU s")
    return bool(total) and both.total() >= 0.95 * total.total()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, help="a folder with the wheels, instead of a download")
    parser.add_argument("--sample", type=int, help="so many models of the installed onnx, and nothing else")
    parser.add_argument("--faults", type=int, default=60, help="so many models with a fault")
    parser.add_argument("--lines", type=Path, help="write the outcome of each model to this file")
    parser.add_argument("--since", type=Path, help="print what differs from such a file")
    given = parser.parse_args()
    into = ROOT / "build/check-models"
    sources = of_installed(given.sample) if given.sample else unpacked(given.wheels, into)
    options = ("--rtol", "1e-3")
    groups, seconds = {}, {}
    began = time.perf_counter()
    for name, models in sources.items():
        before = cpu_of_children()
        groups[name] = check(models, *options, folder=into)
        seconds[name] = cpu_of_children() - before
    print_table(groups, seconds)
    outcomes = {f"{name}/{shown(line.model)}": line for name, lines in groups.items() for line in lines}
    if given.lines:
        rows = (f"{name}\t{line.outcome}\t{line.reason}\n" for name, line in sorted(outcomes.items()))
        given.lines.write_text("".join(rows), encoding="utf-8")
    if given.since:
        for row in given.since.read_text(encoding="utf-8").splitlines():
            name, outcome, reason = row.split("\t", 2)
            if name in outcomes and outcomes[name].outcome != outcome:
                print(f"{name}: {outcome} ({reason[:150]}) -> {outcomes[name].outcome} ({outcomes[name].reason[:150]})")
    fine = check_faults([line for lines in groups.values() for line in lines], given.faults, into / "faults", options)
    print(f"{time.perf_counter() - began:.0f} s of wall time")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
