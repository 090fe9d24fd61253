"""``python -m pipeline STAGE [OPERATOR]``: every step by hand, as doit runs it.

The stages are imported here, each only when it is asked for: they bring torch, onnx or onnxruntime with them.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline import check, home
from pipeline.dist import settings
from pipeline.dist.settings import Dist
from pipeline.errors import OpmatrixError, ToolchainError, UsageError
from pipeline.layout import Layout
from pipeline.load import Operator, load_operator, load_operators
from pipeline.matrix import TORCH_EXPORTERS, Cell, Choice, illegal
from pipeline.project import chosen_cells, find_root, installed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one stage. Returns 0, or the exit code of the error whose message was printed to stderr."""
    try:
        options = _parser().parse_args(arguments)
        run: Callable[[Layout, argparse.Namespace], None] = options.run
        libraries = {kind: getattr(options, kind, False) for kind in ("sanitized", "debug")}
        layout = Layout(find_root(Path.cwd()), **libraries)
        _go_home(layout, options, arguments)
        run(layout, options)
    except OpmatrixError as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code
    except ModuleNotFoundError:
        try:
            installed()  # another Python than that of the environment, where ./run is forgotten
        except ToolchainError as error:
            print(error, file=sys.stderr, flush=True)
            return error.exit_code
        raise
    return 0


def warm_up() -> None:
    """Build what every step needs, and nothing changes: a server does it once for all of its children (7 ms)."""
    _parser()
    check.warm_up()


def _go_home(layout: Layout, options: argparse.Namespace, arguments: Sequence[str] | None) -> None:
    """Run the command again in the environment of its cell, where that is another one."""
    wanted: dict[home.Factor, str | None] = {"torch": getattr(options, "torch", None)}
    if cell := getattr(options, "cell", None):
        wanted = {"ort": cell.ort} if options.run is _verify else {"torch": cell.torch}
    if options.run is _probe:
        wanted = {options.factor: options.version}
    if options.run in (_verify, _export, _register, _probe):
        for factor, version in wanted.items():
            if version:
                home.go(layout, sys.argv[1:] if arguments is None else arguments, factor=factor, version=version)


@functools.cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pipeline", description="Run one stage of the pipeline by hand.")
    stages = parser.add_subparsers(title="stages", required=True, metavar="STAGE")

    def stage(name: str, run: Callable[[Layout, argparse.Namespace], None], purpose: str) -> argparse.ArgumentParser:
        added = stages.add_parser(name, help=purpose, description=purpose)
        added.set_defaults(run=run)
        return added

    def of_operator(
        name: str, run: Callable[[Layout, argparse.Namespace], None], purpose: str
    ) -> argparse.ArgumentParser:
        added = stage(name, run, purpose)
        added.add_argument("operator", help="a folder of ops/")
        return added

    making = stage("environment", _environment, "make the environment of another torch or ONNX Runtime")
    making.add_argument("name", help="such as torch2.9 or ort1.18: requirements/ holds its pins")
    stage("sdk", _sdk, "find or fetch ONNX Runtime's headers")
    of_operator("glue", _glue, "write the bindings that follow from the declaration")
    compiling = of_operator("compile", _compile, "build the operator's pair of libraries")
    compiling.add_argument("--debug", action="store_true", help="with debug information, in a folder of its own")
    compiling.add_argument(
        "--torch-root",
        type=Path,
        metavar="PLACE",
        help="only the library for the torch of this environment, by its folder",
    )
    of_operator("data", _data, "write inputs and expected outputs of every case")
    of_operator("draw", _draw, "draw inputs from the declaration that are hard on a kernel")
    registering = of_operator("register", _register, "prove the torch library")
    parts = ("schema", "nodes", "kernel", "search", "forbidden", "gradient")
    registering.add_argument(
        "--part", choices=parts, action="append", help="may be given again; without it all but 'forbidden'"
    )
    registering.add_argument("--case", help="hold the kernel against this case alone; nothing is written")
    registering.add_argument("--torch", metavar="VERSION", help="such as 2.9; without it that of this environment")
    adopting = of_operator("adopt", _adopt, "add a case that register's search found to cases.py")
    adopting.add_argument("case", help="its name, as the search said it")
    of_operator(
        "publish", _publish, "keep the schemas of its versions, which are held against the declaration from then on"
    )
    exporting = of_operator("export", _export, "export every model in one cell, or in all default ones")
    agreeing = of_operator("agree", _agree, "hold the exported nodes of all cells against each other")
    agreeing.add_argument("cells", nargs="+", type=Cell.parse, metavar="CELL")
    verifying = of_operator("verify", _verify, "run every model in ONNX Runtime, in one cell or in all default ones")
    verifying.add_argument("--case", help="replay this case alone; no verdict is written")
    verifying.add_argument(
        "--not-first",
        dest="first",
        action="store_false",
        help="leave out what the first cell tries: several threads in one session, models of published versions",
    )
    for added in (exporting, verifying):
        added.add_argument(
            "--cell", type=Cell.parse, help="such as torch2.13-dynamo-opset18-ort1.31 or node-opset18-ort1.31"
        )
    for added in (exporting, agreeing, verifying):
        added.add_argument("--lowering", choices=("custom", "decomposed"), default="custom")
    fuzzing = of_operator("fuzz", _fuzz, "feed ONNX Runtime drawn inputs, and such as the declaration forbids")
    for added in (compiling, registering, verifying, fuzzing):
        added.add_argument("--sanitized", action="store_true", help="with the libraries that sanitizers watch")
    for added in (registering, verifying):
        added.add_argument("--debug", action="store_true", help="with the libraries of compile --debug")
    sanitizing = of_operator(
        "sanitize", _sanitize, "run cases, drawn and illegal inputs with sanitizers that watch both libraries"
    )
    sanitizing.add_argument("--cell", type=Cell.parse, help="whose models; without it the first default one")
    probing = stage("probe", _probe, "measure what the table of legal cells says of a torch or an ONNX Runtime")
    probing.add_argument("factor", choices=("torch", "ort"))
    probing.add_argument("--version", help="such as 2.9; without it that of this environment")
    combining = stage("combine", _combine, "link one ONNX Runtime library of several operators")
    combining.add_argument("operators", nargs="+", metavar="OPERATOR", help="folders of ops/, each compiled already")
    _add_checks(stages)
    stage("link", _link, "link the operators that ship into one pair of libraries")
    stage("dist", _dist, "build a wheel of the operators that ship")
    reporting = stage("report", _report, "show and write what is known about every cell")
    for name, example in (("torch", "2.9,2.13"), ("ort", "1.18,1.31"), ("opsets", "18,20")):
        reporting.add_argument(f"--{name}", default="default", help=f"as doit's variable: default, all, or {example}")
    referring = stage("reference", _reference, "write a page about every operator of the project, from its declaration")
    referring.add_argument("--into", type=Path, metavar="FOLDER", help="without it build/reference")
    return parser


def _environment(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import environment

    environment.run(layout, options.name)


def _add_checks(stages: Any) -> None:
    """Add the parts of `doit check`, each as a stage with a name of two words."""

    def part(name: str, purpose: str, model: str) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = stages.add_parser(f"check-{name}", help=purpose, description=purpose)
        added.set_defaults(run=_check, part=name)
        added.add_argument("model", help=model)
        added.add_argument("--into", type=Path, required=True, help="a folder for what is found")
        return added

    capturing = part("capture", "build, run and export a person's torch model", "module:function or file.py:function")
    capturing.add_argument("--exporter", action="append", choices=TORCH_EXPORTERS, required=True)
    capturing.add_argument("--opset", type=int, required=True)
    reading = part("read", "hold a model against the declarations, without running it", "a model.onnx")
    reading.add_argument("--ort", default="", help="another version of ONNX Runtime, which need not be installed")
    running = part("run", "run a model in ONNX Runtime", "a model.onnx")
    running.add_argument("--of", default="test_data_set_0", help="who expects what lies beside the model")
    comparing = part("compare", "name the first node that differs from its reference", "a model.onnx")
    comparing.add_argument("--differs", action="store_true", help="the outputs are known to be wrong")
    comparing.add_argument("--own", action="store_true", help="only the nodes of this project's operators")
    for added in (running, comparing):
        added.add_argument("--library", action="append", type=Path, default=[], help="a custom-op library")
        added.add_argument("--inputs", type=Path, help="a .npz file")
        added.add_argument("--rtol", type=float)
        added.add_argument("--atol", type=float)


def _sdk(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import sdk

    sdk.run(layout)


def _glue(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import glue

    glue.run(layout, load_operator(layout, options.operator))


def _compile(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import compile

    place = options.torch_root.absolute() if options.torch_root else None
    compile.run(layout, load_operator(layout, options.operator), debug=options.debug, torch=place)


def _data(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import data

    data.run(layout, load_operator(layout, options.operator))


def _draw(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import draw

    draw.run(layout, load_operator(layout, options.operator))


def _register(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import register

    operator = load_operator(layout, options.operator)
    if options.case is not None:
        if options.part not in (None, ["kernel"]):
            raise UsageError("--case replays what the part 'kernel' tries; leave out other parts")
        register.replay(layout, operator, case=options.case)
        return
    for part in register.parts(layout, operator, asked=options.part):
        register.run(layout, operator, part=part)


def _adopt(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import adopt

    adopt.run(layout, load_operator(layout, options.operator), case=options.case)


def _publish(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import publish

    publish.run(layout, load_operator(layout, options.operator))


def _cells(layout: Layout, operator: Operator, options: argparse.Namespace) -> tuple[Cell, ...]:
    if options.cell is None:
        return operator.cells(chosen_cells(layout))
    if reason := illegal(options.cell.exporter, options.cell.opset, options.cell.torch) or operator.why_not_in(
        options.cell
    ):
        raise UsageError(f"{options.cell}: {reason}")
    return (options.cell,)


def _export(layout: Layout, options: argparse.Namespace) -> None:
    operator = load_operator(layout, options.operator)
    for cell in _cells(layout, operator, options):
        if cell.exporter == "node":
            from pipeline.stages import node

            node.run(layout, operator, lowering=options.lowering, cell=cell)
        else:
            from pipeline.stages import export

            export.run(layout, operator, lowering=options.lowering, cell=cell)


def _agree(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import agree

    agree.run(layout, load_operator(layout, options.operator), lowering=options.lowering, cells=options.cells)


def _verify(layout: Layout, options: argparse.Namespace) -> None:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime reads it when it is imported
    from pipeline.stages import verify

    operator = load_operator(layout, options.operator)
    for cell in _cells(layout, operator, options):
        verify.run(layout, operator, lowering=options.lowering, cell=cell, case=options.case, first=options.first)


def _fuzz(layout: Layout, options: argparse.Namespace) -> None:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    from pipeline.stages import fuzz

    fuzz.run(layout, load_operator(layout, options.operator))


def _sanitize(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import sanitize

    operator = load_operator(layout, options.operator)
    sanitize.run(layout, operator, cell=_cells(layout, operator, options)[0])


def _probe(layout: Layout, options: argparse.Namespace) -> None:
    if options.factor == "torch":
        from pipeline.stages import probe_torch

        probe_torch.run(layout)
    else:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        from pipeline.stages import probe_ort

        probe_ort.run(layout)


def _combine(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import combine

    combine.run(layout, [load_operator(layout, name) for name in options.operators])


def _check(layout: Layout, options: argparse.Namespace) -> None:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    if options.part == "capture":
        from pipeline.stages import check_capture

        check_capture.run(
            layout, target=options.model, exporters=options.exporter, opset=options.opset, into=options.into
        )
        return
    model = Path(options.model)
    if options.part == "read":
        from pipeline.stages import check_read

        check_read.run(layout, model=model, ort=options.ort, into=options.into)
        return
    given = {name: getattr(options, name) for name in ("inputs", "rtol", "atol", "into")}
    if options.part == "run":
        from pipeline.stages import check_run

        check_run.run(layout, model=model, libraries=options.library, of=options.of, **given)
    else:
        from pipeline.stages import check_compare

        check_compare.run(
            layout, model=model, libraries=options.library, differs=options.differs, own=options.own, **given
        )


def _shipped(layout: Layout) -> tuple[Dist, tuple[Operator, ...]]:
    operators = load_operators(layout)
    if found := settings.read(layout, operators):
        return found, found.chosen(operators)
    raise UsageError(
        f"pyproject.toml says nothing of a wheel. Write {settings.TABLE} there, with name = 'my_ops' and "
        "version = '1.0.0'; without operators = ['...'] it takes all that have a library of ours and no binding by hand"
    )


def _link(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import link

    link.run(layout, *_shipped(layout))


def _dist(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import dist

    dist.run(layout, *_shipped(layout))


def _report(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import report

    cells = chosen_cells(layout, Choice(torch=options.torch, ort=options.ort, opsets=options.opsets))
    operators = {operator.name: operator for operator in load_operators(layout)}
    report.run(
        layout,
        [
            (operator.name, lowering, cell)
            for operator in operators.values()
            for lowering in operator.spec.lowerings
            for cell in operator.cells(cells)
        ],
        exists=lambda op, lowering, cell: op in operators and operators[op].has(lowering, cell),
    )


def _reference(layout: Layout, options: argparse.Namespace) -> None:
    from pipeline.stages import reference

    reference.run(layout, into=options.into.absolute() if options.into else None)
