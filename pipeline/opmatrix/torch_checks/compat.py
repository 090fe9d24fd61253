"""The rows of `doit compat`: an operator in torch.compile, AOTInductor, torch.vmap, torch.autocast and torch.func. Left
out of `doit`, since a cold compilation takes seconds.

Each row works, is refused with a reason that follows from the declaration, or has failed. What a row calls works is
compared with plain calls; what is refused must raise an error with the reason. torch.compile makes one graph, compiled
once for several sizes; AOTInductor a package, run in a process that has loaded nothing but the operator's library.
"""

from __future__ import annotations

import keyword
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import torch
from torch.fx.experimental.symbolic_shapes import free_symbols

from opmatrix.basics import step_log
from opmatrix.basics.errors import CompatError, OpmatrixError, one_line
from opmatrix.basics.processes import signal_name
from opmatrix.declaration.load import Operator
from opmatrix.export.generated_modules import load_generated
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CheckRecord
from opmatrix.signature.signature import attribute_values, has_torch_library, seeds, torch_arguments, torch_qualified
from opmatrix.spec import FromKernel, OpSpec, tensors_of
from opmatrix.torch_checks import compat_transforms
from opmatrix.torch_checks.case_calls import CaseCall, serve
from opmatrix.torch_checks.compat_samples import (
    Compat,
    RefusedError,
    Tensors,
    bases,
    plain,
    require_equal,
    require_near,
    resized,
)
from opmatrix.torch_checks.compat_transforms import gradients
from opmatrix.torch_ops import features, load, transforms
from opmatrix.torch_ops.call import as_tuple, torch_minor
from opmatrix.torch_ops.load import Gradient

_SIZES = 4  # calls of one compiled function
_SIZES_OF_DATA = "with torch._dynamo.config.capture_dynamic_output_shape_ops = True"


def compiled(compat: Compat, *, backend: Any = "inductor") -> tuple[int, str]:
    """Compile the call of each sample as one graph with dynamic sizes, and call it with several sizes: it may be
    compiled once."""
    refuse_keywords(compat.spec, lambda: _compiled_once(compat.samples[:1], backend))
    count, variable = 0, any(isinstance(o.shape, FromKernel) for o in compat.spec.outputs)
    before = torch._dynamo.config.capture_dynamic_output_shape_ops
    torch._dynamo.config.capture_dynamic_output_shape_ops = before or variable
    try:
        for base in (*compat.samples, *compat.written):
            several = [base, *(sample for _, sample in zip(range(_SIZES - 1), resized(base), strict=False))]
            count += _compiled_once(several, backend)
        for samples in (compat.samples, compat.written) if compat.gradient else ():
            for base in [one for one in samples if one.derived][:1]:
                torch._dynamo.reset()
                function = torch.compile(base.function, backend=backend, fullgraph=True, dynamic=True)
                expected = gradients(base, replace(base, composed=False).function)
                require_near(base, gradients(base, function), expected, "in the gradient of the compiled call")
                count += 1
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = before
        torch._dynamo.reset()
    return count, _SIZES_OF_DATA if variable else ""


def refuse_keywords(spec: OpSpec, compile: Callable[[], object]) -> None:
    """Raise RefusedError for an operator with an argument that a keyword of Python names, if inductor refuses it."""
    if named := [a.name for a in torch_arguments(spec) if keyword.iskeyword(a.name)]:
        why = f"inductor cannot call an operator with an argument that a keyword of Python names: {', '.join(named)}"
        try:
            compile()
        except Exception as error:  # of several kinds, by the place of the argument
            raise RefusedError(why) from error
        raise CompatError(f"expected an error, and it ran: {why}")


def _compiled_once(several: Sequence[CaseCall], backend: Any) -> int:
    graphs: list[Any] = []
    compile_graph = torch._dynamo.lookup_backend(backend) if isinstance(backend, str) else backend

    def counted(graph: Any, inputs: Any) -> Any:
        program = compile_graph(graph, inputs)  # which torch interrupts to begin again, where an attribute is a float
        graphs.append(graph)
        return program

    torch._dynamo.reset()
    settings: Any = torch.fx.experimental._config
    function: Any = torch.compile(several[0].function, backend=counted, fullgraph=True, dynamic=True)
    for sample in several:
        # Else torch takes sizes that are equal in the first call for one, and compiles again where they are not.
        with torch.no_grad(), settings.patch(use_duck_shape=False):
            found = as_tuple(function(*sample.arguments))
        require_equal(sample, found, plain(sample), "compiled by torch.compile")
        if len(graphs) > 1:
            raise CompatError(
                f"{sample.subject}: torch.compile compiled it again for these sizes, after {several[0].subject}: the "
                "fake kernel or the gradient takes a size as a number, such as int(x.shape[0])"
            )
    return len(several)


_PACKAGED_SIZES = 3  # runs of one package
_IN_PYTHON = "in a process that defines it, since no library does"
_PROGRAM = """
import sys, torch
folder, library = sys.argv[1:]
torch.ops.load_library(library)
package = torch._inductor.aoti_load_package(f"{folder}/package.pt2")
torch.save([package(*tensors) for tensors in torch.load(f"{folder}/inputs.pt")], f"{folder}/outputs.pt")
"""

Run = Sequence[CaseCall]  # one for each call of the operator in the package


class _Calls(torch.nn.Module):
    """One call of the operator for each sample: a package takes 13 CPU s, whatever it calls."""

    def __init__(self, samples: Run) -> None:
        super().__init__()
        self._samples = samples

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = iter(tensors)
        calls = (sample.call(*islice(left, len(sample.tensors))) for sample in self._samples)
        return tuple(chain.from_iterable(calls))


def packaged(compat: Compat) -> tuple[int, str]:
    """Make one package that calls the operator for every sample, and run it with several sizes."""
    if not features.AOT_INDUCTOR.available:
        raise RefusedError(features.AOT_INDUCTOR.skip_reason.removeprefix("skipped: "))
    empty = dict.fromkeys(chain.from_iterable(map(_empty_lists, compat.samples)))
    filled = [sample for sample in compat.samples if not _empty_lists(sample)]
    why = f"with a value in {', '.join(empty)}: in a package, torch passes None for an empty list" if empty else ""
    refuse_keywords(compat.spec, lambda: _run(compat.samples[:1], compat.library))
    if empty and not filled:
        try:
            _run(compat.samples[:1], compat.library)
        except Exception as error:  # of the kernel or of its binding
            raise RefusedError(f"no case calls it {why}") from error
        raise CompatError(f"expected an error, and it ran: no case calls it {why}")
    filled += [sample for sample in compat.written if not _empty_lists(sample)]
    return _run(filled, compat.library), why or ("" if compat.library else _IN_PYTHON)


def _empty_lists(sample: CaseCall) -> list[str]:
    """Return the inputs and attributes of a sample that are empty lists."""
    inputs = [part.name for part in sample.spec.inputs if part.variadic and not tensors_of(sample.case, part.name)]
    return [*inputs, *(name for name, value in attribute_values(sample.spec, sample.model).items() if value == ())]


def _run(samples: Run, library: Path | None) -> int:
    """Make the package, and compare what it computes for several sizes; return how many calls agree."""
    several = [[base, *islice(resized(base), _PACKAGED_SIZES - 1)] for base in samples]
    runs = [[sized[min(n, len(sized) - 1)] for sized in several] for n in range(max(map(len, several)))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(runs, folder)
        for run, found in zip(runs, _outputs(runs, folder, library), strict=True):
            left = iter(found)
            for sample in run:
                expected = plain(sample)
                require_equal(sample, [*islice(left, len(expected))], expected, "in a package of AOTInductor")
    return len(runs) * len(samples)


def _make(runs: Sequence[Run], folder: Path) -> None:
    """Write the package from the first run. Raises CompatError for a size that it takes as a number and others have."""
    tensors = _tensors(runs[0])
    sizes = tuple(dict.fromkeys(range(t.dim()), torch.export.Dim.AUTO) for t in tensors)
    settings: Any = torch.fx.experimental._config
    with torch.no_grad(), settings.patch(use_duck_shape=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.jit, in torch's own modules; duck shape takes equal sizes for one
        program = torch.export.export(_Calls(runs[0]), tensors, dynamic_shapes=(sizes,), strict=False)
        _require_dynamic(program, runs)
        torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "package.pt2"))


def _require_dynamic(program: Any, runs: Sequence[Run]) -> None:
    """Compare the sizes of the program with those of all runs: a package does not, and computes with others."""
    taken = [node.meta["val"].shape for node in program.graph.nodes if node.op == "placeholder"]
    places = [(sample, name) for sample in runs[0] for name in sample.names]
    for shape, (sample, name), *tensors in zip(taken, places, *map(_tensors, runs), strict=True):
        for axis, size in enumerate(shape):
            if not free_symbols(size) and any(t.shape[axis] != size for t in tensors):
                raise CompatError(
                    f"{sample.subject}: torch.export takes the size of axis {axis} of {name} as the number {size}, and "
                    "the operator takes others: the fake kernel takes a size as a number, such as int(x.shape[0])"
                )


def _tensors(samples: Run) -> tuple[torch.Tensor, ...]:
    """Return the inputs of the package, contiguous: it takes no other strides than those it was made with."""
    return tuple(t.contiguous() for sample in samples for t in sample.tensors)


def _outputs(runs: Sequence[Run], folder: Path, library: Path | None) -> list[Tensors]:
    """Return the outputs of each run. Raises CompatError with what the process printed last."""
    inputs = [_tensors(run) for run in runs]
    if not library:
        package: Any = torch._inductor.aoti_load_package(str(folder / "package.pt2"))
        return [package(*tensors) for tensors in inputs]
    torch.save(inputs, folder / "inputs.pt")
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, folder, library], capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        ending = signal_name(-done.returncode) if done.returncode < 0 else f"exit code {done.returncode}"
        last = [line.strip() for line in done.stderr.splitlines() if re.match(r"[\w.]+(Error|Exception): ", line)][-1:]
        raise CompatError(
            f"the package of AOTInductor does not run in a process that has loaded {library.name} alone: "
            + ": ".join([ending, *last])
        )
    outputs: list[Tensors] = torch.load(folder / "outputs.pt")
    return outputs


def run(paths: Paths, operator: Operator, **_: object) -> None:
    """Run every row and write the record. Raises CompatError if one has failed."""
    path = paths.compat_record(operator.name, torch=torch_minor())
    record = CheckRecord(op=operator.name, check="compat", torch=torch_minor(), outcome="failed")
    if not features.BATCHING.available:
        skipped = features.BATCHING.skip_reason
        verdict.write(path, replace(record, outcome="unsupported", detail=skipped.removeprefix("skipped: ")))
        return
    if not operator.spec.torch or operator.spec.torch.overrides:
        why = "torch has its own operator" if operator.spec.torch else "torch does not have this operator"
        raise CompatError(f"{operator.name}: {why}, and `compat` runs the operators that a project defines in torch")
    try:
        rows = _rows(paths, operator)
    except OpmatrixError as error:
        verdict.write(path, replace(record, detail=str(error)))
        raise
    for row in rows:
        print(f"{row.name}: {row.outcome}" + (f": {row.detail}" if row.detail else ""))
    wrong = "\n".join(f"{operator.name} in {row.name}: {row.detail}" for row in rows if row.outcome == "failed")
    found = replace(record, results=tuple(asdict(row) for row in rows), detail=wrong)
    verdict.write(path, found if wrong else replace(found, outcome="verified"))
    if wrong:
        raise CompatError(wrong)


def _rows(paths: Paths, operator: Operator) -> list[Row]:
    loaded = load.load(paths, operator)
    if operator.spec.torch and not operator.spec.torch.python:
        load_generated(paths, operator.name).fake.register_fake()
    gradient = load.gradient(paths, operator.spec)
    if gradient and gradient.operator:
        serve(paths, gradient)
        transforms.register_rules(gradient.operator.spec)
    library = load.library_path(paths, operator) if has_torch_library(operator.spec) else None
    prepared = prepare(operator, gradient, library=library)
    with tempfile.TemporaryDirectory() as cache:  # torch compiles anew: what it kept may be of another operator
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        rows = []
        generator = {GENERATOR: compat_transforms.generators} if seeds(operator.spec) else {}
        for name, check in {**CHECKS, **generator}.items():
            step_log.now_running(name)
            rows.append(row(name, check, prepared))
    del loaded  # which kept a definition in Python alive
    return rows


Check = Callable[[Compat], tuple[int, str]]

CHECKS: Mapping[str, Check] = {
    "torch.compile": compiled,
    "AOTInductor": packaged,
    "torch.vmap": compat_transforms.mapped,
    "torch.autocast": compat_transforms.autocast,
    "torch.func.grad": compat_transforms.functional,
    "torch.func.jvp": compat_transforms.forward_mode,
}
"""The rows, in the order of the report. Each check returns how many calls agree, and what they need or ""."""

GENERATOR = "torch.Generator"
"""One more row, of operators that a generator gives a seed."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to run an operator. `detail`: why it is refused or wrong, or what it needs; `samples`: how many calls."""

    name: str
    outcome: Literal["works", "refused", "failed"]
    detail: str = ""
    samples: int = 0


def prepare(operator: Operator, gradient: Gradient | None, library: Path | None = None) -> Compat:
    """Register what the transforms need, and choose samples. Raises CompatError where no case can be one."""
    name = torch_qualified(operator.spec)
    if gradient and not transforms.has_formula(name):
        gradient.register(name)
    transforms.register_missing_gradient(operator.spec)
    transforms.register_rules(operator.spec)
    found = bases(operator, without=gradient.without if gradient else ())
    if not found:
        raise CompatError(
            f"{operator.name}: no case that torch.compile and torch.vmap could run: add one to cases.py that has "
            "elements, at most 4096 in each tensor, and values that cases.py gives"
        )
    return Compat(spec=operator.spec, samples=found, gradient=gradient, library=library)


def row(name: str, check: Check, compat: Compat) -> Row:
    """Run one check, which returns how many calls agree and what they need, or raises an error."""
    try:
        samples, needs = check(compat)
    except RefusedError as why:
        return Row(name=name, outcome="refused", detail=str(why))
    except Exception as error:  # torch may raise anything while it compiles or transforms
        text = str(error) if isinstance(error, CompatError) else f"{type(error).__name__}: {one_line(error)}"
        return Row(name=name, outcome="failed", detail=text)
    return Row(name=name, outcome="works", detail=needs, samples=samples)
