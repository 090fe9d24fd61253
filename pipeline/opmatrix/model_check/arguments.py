"""What `doit check` was asked: a model, as file or function, and options. Imports no framework."""

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
    """`function` is whether `model` is one; `label` names the folder of what is found. `left_out` says of exporters why
    they cannot write the opset. `tolerance` and `inputs` are options of the parts that run a model."""

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
    """Return what was asked in `folder`, where `torch`, "2.13", is installed. Raises UsageError for what cannot be."""
    place, colon, function = model.rpartition(":")
    path = folder / model
    if path.exists() or not colon:
        _check_file(path, model)
        return CheckRequest(
            model=str(path.resolve()),
            function=False,
            label=_label(path.stem, str(path.resolve())),
            opset=options["opset"],
            ort=options["ort"],
            inputs=("--inputs", str((folder / options["inputs"]).resolve())) if options["inputs"] else (),
            tolerance=_tolerance(options),
        )
    if place.endswith(".py") and not (folder / place).is_file():
        raise UsageError(f"there is no file {place!r}, so no function {function!r} in it")
    if not place or not function.isidentifier():
        raise UsageError(f"{model!r} is no model; write {FORMS}")
    if options["inputs"]:
        raise UsageError(f"--inputs is for an .onnx file; {function}() gives the inputs of its model itself")
    exporters, left_out = _exporters(options["exporter"], options["opset"], torch)
    return CheckRequest(
        model=model,
        function=True,
        label=_label(f"{Path(place).stem}.{function}", model),
        exporters=exporters,
        left_out=left_out,
        opset=options["opset"],
        ort=options["ort"],
        tolerance=_tolerance(options),
    )


def _check_file(path: Path, model: str) -> None:
    if path.is_dir():
        raise UsageError(f"{model!r} is a folder; write {FORMS}")
    if not path.is_file():
        near = did_you_mean(path.name, (p.name for p in path.parent.glob("*.onnx")))
        raise UsageError(f"there is no file {model!r}; write {FORMS}{near}")
    if path.suffix == ".py":
        raise UsageError(f"{model!r} is no model; name a function in it that builds one, such as {model}:build")


def _label(stem: str, whole: str) -> str:
    return f"{stem}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


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
