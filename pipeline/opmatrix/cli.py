"""``python -m opmatrix STAGE [OPERATOR]``: every step by hand, as doit runs it.

A stage is imported only when it is asked for: stages import torch, onnx or onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from opmatrix.declaration import validation
from opmatrix.declaration.load import Operator, load_operator, load_operators
from opmatrix.environments import reexec
from opmatrix.errors import OpmatrixError, ToolchainError, UsageError
from opmatrix.matrix.cells import TORCH_EXPORTERS, Cell, Choice, why_unsupported
from opmatrix.project.format import check_format
from opmatrix.project.paths import Paths
from opmatrix.project.settings import chosen_cells, find_root, installed
from opmatrix.spec import Lowering
from opmatrix.wheel import settings

if TYPE_CHECKING:
    from opmatrix.stages.register import Part

Argument = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Stage:
    """A row of STAGES: what the stage does, and its arguments. Its module in `stages` has the name of the command."""

    purpose: str
    arguments: tuple[Argument, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one stage. Returns 0, or the exit code of the error whose message was printed to stderr."""
    try:
        options = vars(_parser().parse_args(arguments))
        name = options.pop("stage")
        libraries = {kind: options.pop(kind, False) for kind in ("sanitized", "debug")}
        layout = Paths(find_root(Path.cwd()), **libraries)
        check_format(layout.root)
        factor, version = _needed(name, options)
        if version:
            reexec.in_environment(
                layout, sys.argv[1:] if arguments is None else arguments, factor=factor, version=version
            )
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime reads it when it is imported
        if "operator" in options:
            options["operator"] = load_operator(layout, options["operator"])
        if "operators" in options:
            options["operators"] = [load_operator(layout, operator) for operator in options["operators"]]
        run = _SPECIAL.get(name) or _module(name).run
        run(layout, **options)
    except OpmatrixError as error:
        return _fail(error)
    except ModuleNotFoundError:
        try:
            installed()  # another Python than that of the environment, where ./run is forgotten
        except ToolchainError as error:
            return _fail(error)
        raise
    return 0


def warm_up() -> None:
    """Build what every step needs and none changes: a server does it once for all of its children (7 ms)."""
    _parser()
    validation.warm_up()


def _module(stage: str) -> ModuleType:
    return import_module(f"opmatrix.stages.{stage.replace('-', '_')}")


def _fail(error: OpmatrixError) -> int:
    print(error, file=sys.stderr, flush=True)
    return error.exit_code


def _needed(stage: str, options: Mapping[str, Any]) -> tuple[reexec.Factor, str | None]:
    """Return the version of torch or ONNX Runtime that a command asks for, whose environment then runs it."""
    cell: Cell | None = options.get("cell")
    if stage == "verify":
        return "ort", cell.ort if cell else None
    if stage == "export":
        return "torch", cell.torch if cell else None
    if stage == "probe":
        return options["factor"], options["version"]
    return "torch", options["torch"] if stage == "register" else None


@cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m opmatrix", description="Run one stage of the pipeline by hand.")
    stages = parser.add_subparsers(title="stages", required=True, metavar="STAGE", dest="stage")
    for name, stage in STAGES.items():
        added = stages.add_parser(name, help=stage.purpose, description=stage.purpose)
        for argument, how in stage.arguments:
            added.add_argument(argument, **how)
    return parser


# The stages that are more than one call of one module.


def _compile(layout: Paths, *, operator: Operator, torch: Path | None) -> None:
    from opmatrix.stages import compile

    compile.run(layout, operator, debug=layout.debug, torch=torch)


def _register(layout: Paths, *, operator: Operator, part: Sequence[Part] | None, case: str | None, **_: object) -> None:
    from opmatrix.stages import register

    if case is not None:
        if part not in (None, ["kernel"]):
            raise UsageError("--case replays what the part 'kernel' tries; leave out other parts")
        register.replay(layout, operator, case=case)
        return
    for one in register.parts(layout, operator, asked=part):
        register.run(layout, operator, part=one)


def _cells(layout: Paths, operator: Operator, cell: Cell | None) -> tuple[Cell, ...]:
    if cell is None:
        return operator.cells(chosen_cells(layout))
    if reason := why_unsupported(cell.exporter, cell.opset, cell.torch) or operator.unavailable_reason(cell):
        raise UsageError(f"{cell}: {reason}")
    return (cell,)


def _export(layout: Paths, *, operator: Operator, lowering: Lowering, cell: Cell | None) -> None:
    for one in _cells(layout, operator, cell):
        if one.exporter == "node":
            from opmatrix.stages import export_node

            export_node.run(layout, operator, lowering=lowering, cell=one)
        else:
            from opmatrix.stages import export

            export.run(layout, operator, lowering=lowering, cell=one)


def _verify(layout: Paths, *, operator: Operator, cell: Cell | None, **options: Any) -> None:
    from opmatrix.stages import verify

    for one in _cells(layout, operator, cell):
        verify.run(layout, operator, cell=one, **options)


def _sanitize(layout: Paths, *, operator: Operator, cell: Cell | None) -> None:
    from opmatrix.stages import sanitize

    sanitize.run(layout, operator, cell=_cells(layout, operator, cell)[0])


def _probe(layout: Paths, *, factor: reexec.Factor, version: str | None) -> None:
    _module(f"probe-{factor}").run(layout)


def _ship(stage: str, layout: Paths) -> None:
    operators = load_operators(layout)
    if not (found := settings.read(layout, operators)):
        raise UsageError(
            f"pyproject.toml says nothing of a wheel. Write {settings.TABLE} there, with name = 'my_ops' and version "
            "= '1.0.0'; without operators = ['...'] it takes all that have a library of ours and no binding by hand"
        )
    _module(stage).run(layout, found, found.chosen(operators))


def _report(layout: Paths, **choice: str) -> None:
    from opmatrix.stages import report

    cells = chosen_cells(layout, Choice(**choice))
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


_SPECIAL: Mapping[str, Callable[..., None]] = {
    "compile": _compile, "register": _register, "export": _export, "verify": _verify, "sanitize": _sanitize,
    "probe": _probe, "link-wheel": partial(_ship, "link-wheel"), "dist": partial(_ship, "dist"), "report": _report,
}  # fmt: skip


def _stage(purpose: str, *arguments: Argument) -> Stage:
    return Stage(purpose, arguments)


def _argument(name: str, help: str | None = None, **how: Any) -> Argument:
    return name, {"help": help, **how}


def _flag(name: str, help: str) -> Argument:
    return _argument(name, help, action="store_true")


def _absolute(path: str) -> Path:
    return Path(path).absolute()


_OPERATOR = _argument("operator", "a folder of ops/")
_CELL = _argument("--cell", "such as torch2.13-dynamo-opset18-ort1.31 or node-opset18-ort1.31", type=Cell.parse)
_LOWERING = _argument("--lowering", choices=("custom", "decomposed"), default="custom")
_SANITIZED = _flag("--sanitized", "with the libraries that sanitizers watch")
_DEBUG = _flag("--debug", "with the libraries of compile --debug")
_MODEL = _argument("model", "a model.onnx", type=Path)
_INTO = _argument("--into", "a folder for what is found", type=Path, required=True)
_SESSION = (
    _argument("--library", "a custom-op library", dest="libraries", metavar="LIBRARY", action="append", type=Path,
              default=[]),
    _argument("--inputs", "a .npz file", type=Path),
    _argument("--rtol", type=float),
    _argument("--atol", type=float),
)  # fmt: skip

STAGES: Mapping[str, Stage] = {
    "environment": _stage(
        "make the environment of another torch or ONNX Runtime",
        _argument("name", "such as torch2.9 or ort1.18: requirements/ holds its pins"),
    ),
    "headers": _stage("find or fetch ONNX Runtime's headers"),
    "codegen": _stage("write the bindings that follow from the declaration", _OPERATOR),
    "compile": _stage(
        "build the operator's pair of libraries", _OPERATOR,
        _flag("--debug", "with debug information, in a folder of its own"),
        _argument("--torch-root", "only the library for the torch of this environment, by its folder",
                  dest="torch", metavar="PLACE", type=_absolute),
        _SANITIZED,
    ),
    "data": _stage("write inputs and expected outputs of every case", _OPERATOR),
    "draw-inputs": _stage("draw inputs from the declaration that are hard on a kernel", _OPERATOR),
    "register": _stage(
        "prove the torch library", _OPERATOR,
        _argument("--part", "may be given again; without it all but 'forbidden'", action="append",
                  choices=("schema", "nodes", "kernel", "search", "forbidden", "gradient")),
        _argument("--case", "hold the kernel against this case alone; nothing is written"),
        _argument("--torch", "such as 2.9; without it that of this environment", metavar="VERSION"),
        _SANITIZED, _DEBUG,
    ),
    "adopt-case": _stage(
        "add a case that register's search found to cases.py", _OPERATOR,
        _argument("case", "its name, as the search said it"),
    ),
    "publish": _stage(
        "keep the schemas of its versions, which are held against the declaration from then on",
        _OPERATOR,
    ),
    "export": _stage(
        "export every model in one cell, or in all default ones", _OPERATOR, _CELL, _LOWERING
    ),
    "compare-exports": _stage(
        "hold the exported nodes of all cells against each other", _OPERATOR,
        _argument("cells", nargs="+", type=Cell.parse, metavar="CELL"), _LOWERING,
    ),
    "verify": _stage(
        "run every model in ONNX Runtime, in one cell or in all default ones", _OPERATOR,
        _argument("--case", "replay this case alone; no verdict is written"),
        _argument("--skip-once-checks", "leave out what is checked in one cell per torch and ONNX Runtime: several "
                  "threads in one session, models of published versions", dest="once", action="store_false"),
        _CELL, _LOWERING, _SANITIZED, _DEBUG,
    ),
    "ort-fuzz": _stage(
        "feed ONNX Runtime drawn inputs, and such as the declaration forbids",
        _OPERATOR, _SANITIZED,
    ),
    "sanitize": _stage(
        "run cases, drawn and illegal inputs with sanitizers that watch both libraries", _OPERATOR,
        _argument("--cell", "whose models; without it the first default one", type=Cell.parse),
    ),
    "probe": _stage(
        "measure what the table of legal cells says of a torch or an ONNX Runtime",
        _argument("factor", choices=("torch", "ort")),
        _argument("--version", "such as 2.9; without it that of this environment"),
    ),
    "link-together": _stage(
        "link one ONNX Runtime library of several operators",
        _argument("operators", "folders of ops/, each compiled already", nargs="+", metavar="OPERATOR"),
    ),
    "check-capture": _stage(
        "build, run and export a person's torch model",
        _argument("target", "module:function or file.py:function", metavar="model"), _INTO,
        _argument("--exporter", dest="exporters", action="append", choices=TORCH_EXPORTERS, required=True),
        _argument("--opset", type=int, required=True),
    ),
    "check-read": _stage(
        "hold a model against the declarations, without running it", _MODEL, _INTO,
        _argument("--ort", "another version of ONNX Runtime, which need not be installed", default=""),
    ),
    "check-run": _stage(
        "run a model in ONNX Runtime", _MODEL, _INTO,
        _argument("--of", "who expects what lies beside the model", default="test_data_set_0"), *_SESSION,
    ),
    "check-compare": _stage(
        "name the first node that differs from its reference", _MODEL, _INTO,
        _flag("--differs", "the outputs are known to be wrong"),
        _flag("--own", "only the nodes of this project's operators"), *_SESSION,
    ),
    "link-wheel": _stage("link the operators that ship into one pair of libraries"),
    "dist": _stage("build a wheel of the operators that ship"),
    "report": _stage(
        "show and write what is known about every cell",
        *(_argument(f"--{name}", f"as doit's variable: default, all, or {example}", default="default")
          for name, example in (("torch", "2.9,2.13"), ("ort", "1.18,1.31"), ("opsets", "18,20"))),
    ),
    "operator-pages": _stage(
        "write a page about every operator of the project, from its declaration",
        _argument("--into", "without it build/reference", type=_absolute, metavar="FOLDER"),
    ),
}  # fmt: skip
