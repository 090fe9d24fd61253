"""Find what is wrong in the output of a failed step: one sentence, a file, a line and the command that repeats it.

A step that knows better writes it to its log (`opmatrix.basics.step_log.log_cause`).
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from opmatrix.basics.errors import Cause, is_of_disk, one_line, without_colours
from opmatrix.records.step import Step

_LONGEST = 400  # characters of a sentence: the rest is in the details
_COMPILER = re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d+):\d+: (?:fatal )?error: (?P<text>.*)")
# What a sanitizer found, and a line of the project in it or in the stack below it.
_SANITIZER = re.compile(r"(?::\d+:\d+: (?=runtime error: )|(?=(?:ERROR|WARNING): \w+Sanitizer: ))(?P<text>.*)")
_IN_NATIVE = re.compile(r"(?P<file>native/[^\s:]+):(?P<line>\d+)")
# A message about a file: `ops/relu/spec.py:3: ...`, or with a field, `ops/relu/spec.py: outputs[0].shape: ...`.
_FILE = re.compile(r"(?P<file>(?:ops|native)/[^\s:]+\.\w+|pyproject\.toml|dodo\.py)(?::(?P<line>\d+))?: (?P<text>.*)")
_FIELD = re.compile(r"(?P<field>[A-Za-z_][\w.\[\]'\"]*): ")
_REPLAY = re.compile(r"\.? Replay: (?P<command>.*)")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+), in ')
_TO_DECLARE = re.compile(r"Declare it in (?P<file>ops/\w+/spec\.py): .*?\b(?P<field>attributes)\b")
_IN_CELL = re.compile(r"^(\S+?)@(?:torch|node)\S+: ")
_TRACEBACK = "Traceback (most recent call last):"


def find_cause(step: Step, output: Sequence[str], *, root: Path, told: Cause | None = None) -> Cause:
    """Return the cause of a step's failure; `output` is what it printed, or how it died; `told` what its log says."""
    cause = told or Cause()
    lines = [without_colours(line) for line in output if line.strip() and not line.startswith("$ ")]
    if not cause.sentence:
        found = in_output(lines, root)
        cause = replace(found, file=cause.file or found.file, line=cause.line if cause.file else found.line,
                        command=cause.command or found.command)  # fmt: skip
    if not cause.file and not is_of_disk(cause.sentence):
        places = (place for place in _places(step) if (root / place[0]).is_file())
        file, pattern, what = next(places, ("", "", ""))
        text = (root / file).read_text(errors="replace", encoding="utf-8") if file else ""
        begins = re.search(pattern, text, re.MULTILINE) if pattern else None
        line = text.count("\n", 0, begins.start("at")) + 1 if begins else 0
        cause = replace(cause, file=file, line=line, begins=what)
    # The cell of a case is in the command; equal failures in other cells have the same cause.
    sentence = _IN_CELL.sub(r"\1: ", one_line(cause.sentence))
    lacks = _TO_DECLARE.search(sentence)
    if lacks and (line := line_of_field(root / lacks["file"], lacks["field"])):  # as in ops/relu/spec.py:3: ...
        sentence = f"{sentence[: lacks.end('file')]}:{line}{sentence[lacks.end('file') :]}"
    return replace(cause, sentence=sentence if len(sentence) <= _LONGEST else f"{sentence[:_LONGEST]} ...")


def in_output(lines: Sequence[str], root: Path) -> Cause:
    """Return the first error of a compiler, or what the first line says, or the last one of a traceback."""
    for line in lines:
        if "error: " in line and (found := _COMPILER.search(line)):  # the search takes 20 ms for a line without a colon
            return Cause(sentence=found["text"], file=_shown(found["file"].strip(), root), line=int(found["line"]))
    if not lines:
        return Cause(sentence="failed without a message")
    for number, line in enumerate(lines):
        if found := _SANITIZER.search(line):
            places = (_IN_NATIVE.search(below) for below in lines[number:])
            known = (place for place in places if place and (root / place["file"]).is_file())
            own = next(((place["file"], int(place["line"])) for place in known), ("", 0))
            return Cause(sentence=found["text"], file=own[0], line=own[1])
    if _TRACEBACK in lines:
        return _of_traceback(lines[lines.index(_TRACEBACK) :], root)
    first, command = lines[0].strip(), ""
    if replay := _REPLAY.search(first):
        first, command = first[: replay.start()], replay["command"]
    if not (found := _FILE.match(first)):
        return Cause(sentence=first, command=command)
    at = int(found["line"] or 0)
    if not at and (field := _FIELD.match(found["text"])):
        at = line_of_field(root / found["file"], field["field"])
    return Cause(sentence=found["text"], file=found["file"], line=at, command=command)


def _of_traceback(lines: Sequence[str], root: Path) -> Cause:
    frames = [found for line in lines if (found := _FRAME.match(line))]
    own = [f for f in frames if f["file"].startswith((f"{root}/ops/", f"{root}/native/"))]
    said = [line for line in lines if not line.startswith(" ")][-1]
    if not own:
        return Cause(sentence=said)
    return Cause(sentence=said, file=_shown(own[-1]["file"], root), line=int(own[-1]["line"]))


def _shown(file: str, root: Path) -> str:
    return os.path.relpath(file, root) if Path(file).is_relative_to(root) else file


def _places(step: Step) -> Iterator[tuple[str, str, str]]:
    """Yield the files that may decide what a step does, each with a pattern of the line at which its function begins,
    and what this is."""
    op = re.escape(step.operator)
    if not step.operator:
        return
    kernel = f"native/{step.operator}/kernel.h", rf"^(?!\s*//).*?(?P<at>\b{op}\()", "the kernel"
    lowering = f"ops/{step.operator}/lowering.py", rf"^(?P<at>def {step.lowering}\()", f"{step.lowering}()"
    reference = f"ops/{step.operator}/reference.py", r"^(?P<at>def )", "the reference"
    cases = f"ops/{step.operator}/cases.py", "", ""
    if step.group in ("data", "draw-inputs"):
        yield reference
    elif step.group == "cases":
        yield cases
    elif step.lowering and step.group in ("export", "verify"):
        if step.lowering == "custom" and step.group == "verify":
            yield kernel
        yield lowering
    elif step.check and step.check.check == "gradient":
        yield f"ops/{step.operator}/torch_op.py", r"^(?P<at>def backward\()", "backward()"
    else:
        yield kernel
    yield f"ops/{step.operator}/spec.py", r"^(?P<at>SPEC\b)", "SPEC"


def line_of_field(path: Path, field: str) -> int:
    """Return the line in which a Python file gives a value to a field such as ``outputs[0].shape.input`` or
    ``outputs['y'].shape``, or to the innermost one above it that has a line; 0 if the file cannot be read."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return 0
    variable = "MODELS" if field.startswith("MODELS") else "SPEC"
    values = [value for statement in tree.body if (value := _assigned(statement, variable))]
    if not values:
        return 0
    node, line = values[-1], values[-1].lineno
    for part in re.findall(r"[A-Za-z_]\w*|\[[^\]]*\]", field.removeprefix(variable)):
        if (found := _child(node, part)) is None:
            break
        node, line = found, found.lineno
    return line


def _assigned(statement: ast.stmt, variable: str) -> ast.expr | None:
    match statement:
        case ast.Assign(targets=targets, value=value) if any(getattr(t, "id", "") == variable for t in targets):
            return value
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if name == variable:
            return value
    return None


def _child(node: ast.expr, part: str) -> ast.expr | None:
    """Return the value of a keyword of a call, of a key of a dict, or of a place or a name in a list of values."""
    if not part.startswith("["):
        keywords = node.keywords if isinstance(node, ast.Call) else []
        return next((k.value for k in keywords if k.arg == part), None)
    try:
        key = ast.literal_eval(part[1:-1])
    except (ValueError, SyntaxError):
        return None
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == key), None)
    values = node.elts if isinstance(node, ast.Tuple | ast.List) else []
    if isinstance(key, int):
        return values[key] if key < len(values) else None
    named = ((_child(value, "name"), value) for value in values)
    return next((value for name, value in named if isinstance(name, ast.Constant) and name.value == key), None)
