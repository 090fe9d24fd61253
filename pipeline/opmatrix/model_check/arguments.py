"""Parse the command line of `doit check`: a model file or a function, and options. Imports no framework."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opmatrix.errors import UsageError, did_you_mean
from opmatrix.matrix.cells import TORCH_EXPORTERS, Exporter, why_unsupported

FORMS = "an .onnx file, module:function, or path/to/file.py:function"


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """A parsed command line.

    `function`: `model` names a function, not a file. `label`: the folder of the results. `left_out`: why an exporter
    cannot write the opset. `tolerance` and `inputs`: options for the processes that run the model.
    """

    model: str
    function: bool
    label: str
    exporters: tuple[Exporter, ...] = ()
    left_out: tuple[str, ...] = ()
    opset: int
    ort: str
    inputs: tuple[str, ...] = ()
    tolerance: tuple[str, ...] = ()


def parse(model: str, options: Mapping[str, Any], folder: Path, *, torch: str) -> CheckRequest:
    """Return the request made in `folder`, where `torch`, such as "2.13", is installed. Raises UsageError."""
    source, colon, function = model.rpartition(":")
    path = folder / model
    exporters: tuple[Exporter, ...] = ()
    left_out: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    if is_file := path.exists() or not colon:
        _require_file(path, model)
        model, stem = str(path.resolve()), path.stem
        if options["inputs"]:
            inputs = ("--inputs", str((folder / options["inputs"]).resolve()))
    else:
        if source.endswith(".py") and not (folder / source).is_file():
            raise UsageError(f"there is no file {source!r}, so no function {function!r} in it")
        if not source or not function.isidentifier():
            raise UsageError(f"{model!r} is no model; write {FORMS}")
        if options["inputs"]:
            raise UsageError(f"--inputs is for an .onnx file; {function}() gives the inputs of its model itself")
        stem = f"{Path(source).stem}.{function}"
        exporters, left_out = _exporters(options["exporter"], options["opset"], torch)
    return CheckRequest(
        model=model,
        function=not is_file,
        label=f"{stem}-{hashlib.sha256(model.encode()).hexdigest()[:8]}",
        exporters=exporters,
        left_out=left_out,
        opset=options["opset"],
        ort=options["ort"],
        inputs=inputs,
        tolerance=_tolerance(options),
    )


def _require_file(path: Path, model: str) -> None:
    if path.is_dir():
        raise UsageError(f"{model!r} is a folder; write {FORMS}")
    if not path.is_file():
        near = did_you_mean(path.name, (p.name for p in path.parent.glob("*.onnx")))
        raise UsageError(f"there is no file {model!r}; write {FORMS}{near}")
    if path.suffix == ".py":
        raise UsageError(f"{model!r} is no model; name a function in it that builds one, such as {model}:build")


def _tolerance(options: Mapping[str, Any]) -> tuple[str, ...]:
    words: list[str] = []
    for name in ("rtol", "atol"):
        if options[name]:
            try:
                number = float(options[name])
            except ValueError:
                number = -1
            if not 0 <= number < float("inf"):
                raise UsageError(f"--{name} {options[name]}: write a number that is not negative, such as 1e-4")
            words += [f"--{name}", repr(number)]
    return tuple(words)


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
