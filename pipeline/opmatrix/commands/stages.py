"""``python -m opmatrix STAGE [OPERATOR]``: run one stage by hand, as doit runs it. STAGES is the table of all stages.

A stage's module is imported only when the stage runs: stages import torch, onnx or onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from opmatrix.basics import features
from opmatrix.basics.errors import OpmatrixError, SpecError, UsageError, disk_fault, end_if_unread, print_error
from opmatrix.basics.step_log import LOGGED, dropped, log_cause
from opmatrix.basics.terminal import for_stderr
from opmatrix.declaration.checks import checks as operator_checks
from opmatrix.declaration.isolated import read_operators
from opmatrix.declaration.load import Operator, load_operator, load_operators, operator_names
from opmatrix.environments import reexec
from opmatrix.project import judging_code, work_folder
from opmatrix.project.cells import Cell, Choice, why_unsupported
from opmatrix.project.measured import use_rows
from opmatrix.project.paths import Paths
from opmatrix.project.settings import check_format, chosen_cells, find_root, installed
from opmatrix.records.code_hash import STAGE_MODULES
from opmatrix.spec import Lowering
from opmatrix.wheel import settings

Argument = tuple[str, Mapping[str, Any]]  # the name and the options of `add_argument`
Stage = tuple[str, *tuple[Argument, ...]]  # what the stage does, and its arguments


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one stage. Returns 0, or the exit code of the error that it printed to stderr."""
    try:
        try:
            run_stage(sys.argv[1:] if arguments is None else arguments)
            sys.stdout.flush()
        except SystemExit:  # of --help
            sys.stdout.flush()
            raise
        except ModuleNotFoundError:
            installed()  # raises ToolchainError if this Python is not that of the environment, as without ./run
            raise
    except OpmatrixError as error:
        log_cause(error, Path.cwd())
        # In the log of a step, commands stay as they are: doit prints it.
        print_error(error, change=str if LOGGED in os.environ else for_stderr)
        return error.exit_code
    except BrokenPipeError:
        end_if_unread()
        raise
    except OSError as error:
        if not (said := disk_fault(error)):
            raise
        print(said, file=sys.stderr, flush=True)
        return OpmatrixError.exit_code
    return 0


def run_stage(arguments: Sequence[str]) -> None:
    options = vars(_parser(arguments).parse_args(arguments))
    name = options.pop("stage")
    libraries = {kind: options.pop(kind, False) for kind in ("sanitized", "debug")}
    paths = Paths(find_root(Path.cwd()), **libraries)
    check_format(paths.root)
    use_rows(paths)
    factor, version = _requested_version(name, options)
    if version:
        reexec.in_environment(paths, arguments, factor=factor, version=version)
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime reads it on import
    names = [*filter(None, [options.get("operator")]), *options.get("operators", ())]
    if name == "report":
        names = [*operator_names(paths)]
    elif not names:
        _call(name, paths, options)
        return
    cell: Cell | None = options.get("cell")
    # Before code of the project could change what it imports. A node's export needs no torch, which takes 1 CPU s.
    _module(_export_stage(cell) if name == "export" and cell else name)
    try:
        _run_watched(name, paths, names, options)
    except SpecError:
        # The report has the other operators too: this process is lost, and another one executes no declaration.
        if name == "report" and "--checked" in arguments:
            reexec.again([a for a in arguments if a != "--checked"])
        raise


def _run_watched(name: str, paths: Paths, names: Sequence[str], options: dict[str, Any]) -> None:
    """Run a stage. Raises SpecError where code of its operators changes what judges them."""
    if name in _table(name).ONLY_WRITE:
        with work_folder.inside(paths.root):
            _load(paths, options)
            _call(name, paths, options)
        return
    require_unchanged = judging_code.begin(paths.root, names)
    with work_folder.inside(paths.root):
        try:
            _load(paths, options)
            require_unchanged(declared=True)
            _call(name, paths, options)
        finally:
            require_unchanged(last=True)  # also where a function that was replaced has raised


@dropped()  # doit has read these files: what they print is not of the step
def _load(paths: Paths, options: dict[str, Any]) -> None:
    """Put operators in the place of their names, and those of the report."""
    # doit checked the declaration before it planned this step, and records no step whose declaration changed since.
    checked = LOGGED in os.environ
    if "operator" in options:
        options["operator"] = load_operator(paths, options["operator"], checked=checked)
    if "operators" in options:
        options["operators"] = [load_operator(paths, operator) for operator in options["operators"]]
    if "checked" in options:  # of the report
        of_doit = options.pop("checked")
        options["operators"] = load_operators(paths, checked=True) if of_doit else read_operators(paths).operators


# What these stages write, other ones judge.
ONLY_WRITE = frozenset({"codegen", "adopt-case", "save-case"})


def _call(stage: str, paths: Paths, options: Mapping[str, Any]) -> None:
    run = _table(stage).SPECIAL.get(stage) or _module(stage).run
    run(paths, **options)


def _module(stage: str) -> ModuleType:
    return import_module(STAGE_MODULES.get(stage) or features.added("stages")[stage])


def _table(stage: str) -> Any:
    """Return the module whose tables STAGES, SPECIAL and ONLY_WRITE have a stage: this one, or one of a feature."""
    if stage in STAGES:
        return sys.modules[__name__]
    return features.load(next(one.stage_table for one in features.features().values() if stage in one.stages))


def _stages(words: Sequence[str]) -> Mapping[str, Stage]:
    """Return the rows of all stages, or those of the table of the one that `words` begin with. What a feature that
    cannot be imported would add has its error in place of a purpose."""
    if words and (words[0] in STAGES or words[0] in features.added("stages")):
        return _table(words[0]).STAGES  # type: ignore[no-any-return]  # of a module that a string names
    every = dict(STAGES)
    for name in features.added("stages"):
        try:
            every[name] = _table(name).STAGES[name]
        except UsageError as error:
            every[name] = (str(error),)
    return every


def _requested_version(stage: str, options: Mapping[str, Any]) -> tuple[reexec.Factor, str | None]:
    """Return the version of torch or ONNX Runtime whose environment runs the stage; None for this one."""
    cell: Cell | None = options.get("cell")
    if stage == "verify":
        return "ort", cell.ort if cell else None
    if stage == "export":
        return "torch", cell.torch if cell else None
    if stage == "probe":
        return options["factor"], options["version"]
    return "torch", options["torch"] if stage in ("register", "compat") else None


def _parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser of all stages, or, in a tenth of the time, of the one that `words` begin with."""
    parser = argparse.ArgumentParser(prog="python -m opmatrix", description="Run one stage of the pipeline by hand.")
    stages = parser.add_subparsers(title="stages", required=True, metavar="STAGE", dest="stage")
    known = _stages(words)
    for name in [name for name in words[:1] if name in known] or known:
        purpose, *arguments = known[name]
        stage = stages.add_parser(name, help=purpose, description=purpose)
        for argument, options in arguments:
            stage.add_argument(argument, **options)
    return parser


# The stages that need more than one call of `run` in their module.


def _compile(paths: Paths, *, operator: Operator, torch: Path | None) -> None:
    _module("compile").run(paths, operator, debug=paths.debug, torch=torch)


def _register(paths: Paths, *, operator: Operator, part: Sequence[str] | None, case: str | None, **_: object) -> None:
    register = _module("register")
    if case is None:
        for one in register.parts(paths, operator, asked=part):
            register.run(paths, operator, part=one)
    elif part in (None, ["kernel"]):
        register.replay(paths, operator, case=case)
    elif part == ["search"]:
        register.replay_drawn(paths, operator, case=case)
    else:
        raise UsageError("--case replays what the part 'kernel' or 'search' tries; leave out other parts")


def _cells(paths: Paths, operator: Operator, cell: Cell | None) -> tuple[Cell, ...]:
    if cell is None:
        return operator.cells(chosen_cells(paths))
    if reason := why_unsupported(cell.exporter, cell.opset, cell.torch) or operator.unavailable_reason(cell):
        raise UsageError(f"{cell}: {reason}")
    return (cell,)


def _export_stage(cell: Cell) -> str:
    return "export-node" if cell.exporter == "node" else "export"


def _export(paths: Paths, *, operator: Operator, lowering: Lowering, cell: Cell | None) -> None:
    for one in _cells(paths, operator, cell):
        _module(_export_stage(one)).run(paths, operator, lowering=lowering, cell=one)


def _verify(paths: Paths, *, operator: Operator, cell: Cell | None, **options: Any) -> None:
    for one in _cells(paths, operator, cell):
        _module("verify").run(paths, operator, cell=one, **options)


def _sanitize(paths: Paths, *, operator: Operator, cell: Cell | None) -> None:
    _module("sanitize").run(paths, operator, cell=_cells(paths, operator, cell)[0])


def _save_case(paths: Paths, *, operator: Operator, cell: Cell | None, **options: Any) -> None:
    _module("save-case").run(paths, operator, cells=_cells(paths, operator, cell), **options)


def _probe(paths: Paths, *, factor: reexec.Factor, version: str | None) -> None:
    _module(f"probe-{factor}").run(paths)


def wheel_stage(stage: str, paths: Paths, **options: bool) -> None:
    declared = read_operators(paths)
    operators = declared.operators
    if unusable := settings.unusable(paths, declared.failed):
        raise SpecError("\n".join(line for name in unusable for line in declared.failed[name]))
    if not (dist := settings.read(paths, operators)):
        raise UsageError(
            f"pyproject.toml does not describe a wheel. Add {settings.TABLE} there, with name = 'my_ops' and version "
            "= '1.0.0'; without operators = ['...'] it takes all that have a library that opmatrix builds and no "
            "handwritten binding"
        )
    _module(stage).run(paths, dist, dist.chosen(operators), **options)


def _report(paths: Paths, *, operators: Sequence[Operator], shard: str, **choice: str) -> None:
    cells = chosen_cells(paths, Choice(**choice))
    by_name = {operator.name: operator for operator in operators}
    expected = [
        (operator.name, lowering, cell)
        for operator in by_name.values()
        for lowering in operator.spec.lowerings
        for cell in operator.cells(cells)
    ]
    checks = tuple(operator_checks(paths, by_name.values(), cells))
    part = None
    if shard:
        from opmatrix.plan.shards import own_verdicts  # here as below, for most runs need neither
        from opmatrix.report.records import ReportedPart

        asked, own = own_verdicts(paths, shard)
        whole, every = len(expected), checks
        expected = [key for key in expected if str(paths.verdict(*key)) in own]
        checks = tuple(key for key in checks if str(paths.check_record(*key)) in own)
        elsewhere = frozenset(every).difference(checks)
        part = ReportedPart(number=asked.number, of=asked.of, cells=whole, checks=len(every), elsewhere=elsewhere)

    def exists(op: str, lowering: Lowering, cell: Cell) -> bool:
        return op in by_name and by_name[op].has(lowering, cell)

    _module("report").run(paths, expected, checks, exists=exists, part=part)


SPECIAL: Mapping[str, Callable[..., None]] = {
    "compile": _compile, "register": _register, "export": _export, "verify": _verify, "sanitize": _sanitize,
    "probe": _probe, "link-wheel": partial(wheel_stage, "link-wheel"), "dist": partial(wheel_stage, "dist"),
    "report": _report, "save-case": _save_case,
}  # fmt: skip


def argument(name: str, help: str | None = None, **options: Any) -> Argument:
    return name, {"help": help, **options}


def flag(name: str, help: str) -> Argument:
    return argument(name, help, action="store_true")


def absolute(path: str) -> Path:
    return Path(path).absolute()


OPERATOR = argument("operator", "a folder of ops/")
_CELL = argument("--cell", "such as torch2.13-dynamo-opset18-ort1.31 or node-opset18-ort1.31", type=Cell.parse)
_LOWERING = argument("--lowering", choices=("custom", "decomposed"), default="custom")
_SANITIZED = flag("--sanitized", "with the libraries that sanitizers watch")
_DEBUG = flag("--debug", "with the libraries of compile --debug")
_TORCH = argument("--torch", "such as 2.9; without it that of this environment", metavar="VERSION")
_CHOICE = (
    argument("--torch", "as doit's variable: default, all, or 2.9,2.13", default="default"),
    argument("--ort", "as doit's variable: default, all, or 1.18,1.31", default="default"),
    argument("--opsets", "as doit's variable: default, all, or 18,20", default="default"),
)

STAGES: Mapping[str, Stage] = {
    "environment": (
        "make the environment of another torch or ONNX Runtime",
        argument("name", "such as torch2.9 or ort1.18: its pins are in requirements/"),
    ),
    "check-declaration": (
        "print the mistakes in an operator's files, as doit finds them when it plans",
        argument("name", "a folder of ops/"),
        flag("--planned", "fail in any case: doit planned no other step of it"),
    ),
    "codegen": ("write the bindings that follow from the declaration", OPERATOR),
    "compile": (
        "build the operator's pair of libraries", OPERATOR,
        flag("--debug", "with debug information, in a folder of its own"),
        argument("--torch-root", "only the library for the torch of this environment, by its folder",
                  dest="torch", metavar="PLACE", type=absolute),
        _SANITIZED,
    ),
    "data": ("write inputs and expected outputs of every case", OPERATOR),
    "cases": ("check that the cases detect wrong kernels, with the reference alone", OPERATOR),
    "draw-inputs": ("draw inputs from the declaration that are hard on a kernel", OPERATOR),
    "register": (
        "check the torch library", OPERATOR,
        argument("--part", "may be given again; without it all but 'forbidden'", action="append",
                  choices=("schema", "nodes", "kernel", "search", "forbidden", "gradient")),
        argument("--case", "compare the kernel with this case alone, with --part search a random one; writes nothing"),
        _TORCH, _SANITIZED, _DEBUG,
    ),
    "compat": (
        "run the operator in torch.compile, AOTInductor, torch.vmap, torch.autocast and torch.func", OPERATOR, _TORCH,
    ),
    "adopt-case": (
        "add a case that register's search found to cases.py", OPERATOR,
        argument("case", "its name, as the search printed it"),
    ),
    "save-case": (
        "write a case as a folder that replays with only ONNX Runtime and NumPy", OPERATOR,
        argument("--lowering", "without it one in which the case fails, else the first",
                  choices=("custom", "decomposed")),
        argument("--cell", "without it one in which the case fails, else the first", type=Cell.parse),
        argument("--case", "its name, also that of a random input, published_1, or gradient_NAME", required=True),
        argument("--into", "without it build/saved/NAME", type=absolute, metavar="FOLDER"),
    ),
    "publish": (
        "keep the schemas of its versions, which every later declaration is compared with",
        OPERATOR,
    ),
    "export": (
        "export every model in one cell, or in all default ones", OPERATOR, _CELL, _LOWERING
    ),
    "compare-exports": (
        "hold the exported nodes of all cells against each other", OPERATOR,
        argument("cells", nargs="+", type=Cell.parse, metavar="CELL"), _LOWERING,
    ),
    "verify": (
        "run every model in ONNX Runtime, in one cell or in all default ones", OPERATOR,
        argument("--case", "replay this case alone; no verdict is written"),
        argument("--skip-once-checks", "leave out what is checked in one cell per torch and ONNX Runtime: several "
                  "threads in one session, models of published versions, inferred shapes", dest="once",
                  action="store_false"),
        _CELL, _LOWERING, _SANITIZED, _DEBUG,
    ),
    "ort-fuzz": (
        "call ONNX Runtime with random inputs, and with invalid ones",
        OPERATOR, _SANITIZED,
    ),
    "races": (
        "call the kernel from several threads at once in a program with ThreadSanitizer, without a framework",
        OPERATOR,
    ),
    "sanitize": (
        "run cases, random and invalid inputs with sanitizers in both libraries", OPERATOR,
        argument("--cell", "whose models; without it the first default one", type=Cell.parse),
    ),
    "probe": (
        "measure what the exporters of a torch write, or what an ONNX Runtime reads, as a row of the matrix",
        argument("factor", choices=("torch", "ort")),
        argument("--version", "such as 2.9; without it that of this environment"),
    ),
    "link-together": (
        "link one ONNX Runtime library of several operators",
        argument("operators", "folders of ops/, each compiled already", nargs="+", metavar="OPERATOR"),
    ),
    "link-wheel": ("link the operators that ship into one pair of libraries",),
    "dist": (
        "build a wheel of the operators that ship, and run them from it",
        flag("--unverified", "skip the verification; the wheel's version and dist.json show that"),
    ),
    "tolerances": (
        "print the measured errors of an operator, and the tolerance that they call for", OPERATOR,
        flag("--in-torch", "only those of the kernel in torch, as JSON"),
    ),
    "report": (
        "show and write what is known about every cell",
        flag("--checked", "do not check the operators' files, which doit has checked"),
        argument("--shard", "only the part that doit --shard ran last", default="", metavar="I/N"),
        *_CHOICE,
    ),
    "operator-pages": (
        "write a page about every operator of the project, from its declaration",
        argument("--into", "without it build/reference", type=absolute, metavar="FOLDER"),
    ),
}  # fmt: skip
