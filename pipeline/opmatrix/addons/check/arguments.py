"""Parse the command line of `doit check`: a model file or a function, and options. Imports no framework."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opmatrix.addons.check.parts import PartOptions
from opmatrix.basics.errors import UsageError, did_you_mean
from opmatrix.project.cells import TORCH_EXPORTERS, Exporter, why_unsupported

FORMS = "an .onnx file, module:function, or path/to/file.py:function"


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """What the command line says of one model, which is written there as `asked`.

    `function`: `model` names a function, not a file. `label`: the folder of the results. `left_out`: why an exporter
    cannot write the opset. `seconds` and `megabytes`: limits, None for the default ones. `parts`: options for the
    processes that read and run the model.
    """

    asked: str
    model: str
    function: bool
    label: str
    exporters: tuple[Exporter, ...] = ()
    left_out: tuple[str, ...] = ()
    opset: int
    ort: str
    seconds: float | None = None
    megabytes: float | None = None
    parts: PartOptions = PartOptions()  # noqa: RUF009 - it is frozen


def parse(model: str, options: Mapping[str, Any], folder: Path, *, torch: Callable[[], str]) -> CheckRequest:
    """Return the request made in `folder`. `torch` returns the installed version, such as "2.13"; only a function needs
    it. Raises UsageError."""
    source, colon, function = model.rpartition(":")
    path, asked = _path(folder, model), model
    exporters: tuple[Exporter, ...] = ()
    left_out: tuple[str, ...] = ()
    if is_file := path.exists() or not colon:
        _require_file(path, model)
        model, stem = str(path.absolute()), path.stem  # a link may have its data next to it, its target elsewhere
    else:
        if source.endswith(".py") and not (folder / source).is_file():
            raise UsageError(f"there is no file {source!r}, so no function {function!r} in it")
        if not source or not function.isidentifier():
            raise UsageError(f"{model!r} is no model; write {FORMS}")
        for name in ("inputs", "shape", "against"):
            if options[name]:
                raise UsageError(f"--{name} is for an .onnx file; {function}() gives the inputs of its model itself")
        stem = f"{Path(source).stem}.{function}"
        exporters, left_out = _exporters(options["exporter"], options["opset"], torch())
    limits = {name: _number(options, name, above_0=False) for name in ("rtol", "atol")}
    return CheckRequest(
        asked=asked,
        model=model,
        function=not is_file,
        label=f"{stem}-{hashlib.sha256(model.encode()).hexdigest()[:8]}",
        exporters=exporters,
        left_out=left_out,
        opset=options["opset"],
        ort=options["ort"],
        seconds=_number(options, "seconds", above_0=True),
        megabytes=_number(options, "megabytes", above_0=True),
        parts=PartOptions(
            ort=("--ort", options["ort"]) if options["ort"] else (),
            libraries=_files(folder, "library", options["library"]),
            inputs=_files(folder, "inputs", [options["inputs"]] if options["inputs"] else []),
            shapes=tuple(word for shape in shape_words(parse_shapes(options["shape"])) for word in ("--shape", shape)),
            tolerance=tuple(
                word for name, number in limits.items() if number is not None for word in (f"--{name}", repr(number))
            ),
            against=_files(folder, "against", [options["against"]] if options["against"] else []),
        ),
    )


def parse_shapes(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the shape by name of each ``x=1,3,48,192``; ``x=`` is a scalar. Raises UsageError."""
    shapes: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, equals, sizes = word.rpartition("=")
        numbers = [size.strip() for size in sizes.split(",")] if sizes.strip() else []
        if not equals or not name or not all(n.isdecimal() for n in numbers):
            raise UsageError(f"--shape {word}: write the name of an input and its sizes, such as --shape x=1,3,48,192")
        if name in shapes:
            raise UsageError(f"--shape {word}: the input {name!r} has a shape already")
        shapes[name] = tuple(map(int, numbers))
    return shapes


def shape_words(shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """Return what `parse_shapes` reads."""
    return [f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items()]


def _files(folder: Path, option: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the words of an option whose values are paths. Raises UsageError for one that does not exist."""
    words: list[str] = []
    for name in names:
        path = _path(folder, name)
        if not path.exists():
            near = did_you_mean(path.name, (p.name for p in path.parent.glob("*")))
            raise UsageError(f"--{option} {name}: there is no such file{near}")
        words += [f"--{option}", str(path.resolve())]
    return tuple(words)


def _path(folder: Path, name: str) -> Path:
    """Return the path of a name. Raises UsageError for one that no file can have, such as a long one."""
    try:
        (folder / name).exists()
    except OSError as error:
        raise UsageError(f"{name!r}: {error.strerror}") from error
    return folder / name


def _require_file(path: Path, model: str) -> None:
    if path.is_dir():
        raise UsageError(f"{model!r} is a folder; write {FORMS}, or several files: {model}/*.onnx")
    if not path.is_file():
        if path.is_symlink():
            raise UsageError(f"{model!r} is a link to {str(path.readlink())!r}, where there is no file")
        near = did_you_mean(path.name, (p.name for p in path.parent.glob("*.onnx")))
        raise UsageError(f"there is no file {model!r}; write {FORMS}{near}")
    if path.suffix == ".py":
        raise UsageError(f"{model!r} is no model; name a function in it that builds one, such as {model}:build")


def _number(options: Mapping[str, Any], name: str, *, above_0: bool) -> float | None:
    """Return the value of an option, None where it is not given. Raises UsageError for what is no such number."""
    if not (given := options[name]):
        return None
    with suppress(ValueError):
        if 0 < float(given) < float("inf") or (float(given) == 0 and not above_0):
            return float(given)
    allowed = "above 0, such as 600" if above_0 else "that is not negative, such as 1e-4"
    raise UsageError(f"--{name} {given}: write a number {allowed}")


def _exporters(wanted: str, opset: int, torch: str) -> tuple[tuple[Exporter, ...], tuple[str, ...]]:
    """Return the exporters that can write the opset, and why others cannot. Raises UsageError where none can."""
    if wanted not in ("both", *TORCH_EXPORTERS):
        raise UsageError(f"--exporter {wanted}: allowed: {', '.join(TORCH_EXPORTERS)}, both")
    reasons = {e: why_unsupported(e, opset, torch) for e in TORCH_EXPORTERS if wanted in (e, "both")}
    legal = tuple(e for e, reason in reasons.items() if not reason)
    why = tuple(reason for reason in reasons.values() if reason)
    if not legal:
        raise UsageError(f"--opset {opset}: {'; '.join(why)}")
    return legal, why
