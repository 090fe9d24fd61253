"""Compare what `doit probe` measured of one torch or ONNX Runtime with its row of opmatrix.matrix.cells."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opmatrix.errors import ProbeError
from opmatrix.files import write_text
from opmatrix.matrix.cells import ORT, TORCH, Exporter, ir_version


@dataclass(frozen=True, kw_only=True)
class Export:
    """One attempt to export a tiny model. `wrong` is why the result is not a model of `opset`, `label` as in Torch."""

    exporter: Exporter
    opset: int
    ir: int = 0
    label: bool = False
    wrong: str = ""

    @property
    def runs(self) -> bool:
        return not self.wrong and not self.label


def conclude(path: Path, found: object, differences: Sequence[str], *, name: str) -> None:
    """Write the measured values of `name` as JSON. Raises ProbeError with each difference."""
    write_text(path, json.dumps(found, indent=1) + "\n")
    if differences:
        raise ProbeError("\n".join(differences))
    print(f"{name}: as declared")


def torch_differences(version: str, found: Sequence[Export]) -> list[str]:
    """Return how the measured exports differ from the row of a torch, with the measured row last."""
    if (row := TORCH.get(version)) is None:
        row_text = torch_row(version, found)
        return [f"torch {version} has no row. Add to TORCH in pipeline/opmatrix/matrix/cells.py: {row_text}"]
    declared: Mapping[str, Iterable[int]] = {"legacy": row.legacy, "dynamo": row.dynamo}
    differences = []
    for one in found:
        name = f"torch {version}, {one.exporter} exporter, opset {one.opset}"
        legal = one.opset in declared[one.exporter]
        if legal and not one.runs:
            differences.append(f"{name}: declared legal, and {one.wrong or 'its nodes are of an older opset'}")
        elif one.runs and not legal:
            differences.append(f"{name}: declared illegal, and it runs")
        elif one.exporter == "legacy" and one.label != (one.opset in row.label):
            differences.append(
                f"{name}: its nodes are{'' if one.label else ' not'} of an older opset; declared otherwise"
            )
        if one.runs and one.ir != ir_version(one.exporter, one.opset):
            differences.append(f"{name}: IR version {one.ir}, declared: {ir_version(one.exporter, one.opset)}")
    return [*differences, *([f"The row that was measured: {torch_row(version, found)}"] if differences else [])]


def torch_row(version: str, found: Iterable[Export]) -> str:
    """Return the measured row of TORCH as Python source."""
    tried = list(found)
    parts = []
    for exporter in ("legacy", "dynamo"):
        if runs := [one.opset for one in tried if one.exporter == exporter and one.runs]:
            parts.append(f"{exporter}={_range(runs)}")
        elif exporter == "dynamo":
            parts.append("no_dynamo=...")
    if label := [one.opset for one in tried if one.label]:
        parts.append(f"label={_range(label)}")
    return f'"{version}": Torch({", ".join(parts)})'


def ort_differences(version: str, *, ir: int, opset: int) -> list[str]:
    """Return how the newest IR version and opset that an ONNX Runtime reads differ from its row."""
    found = f'"{version}": Ort(ir={ir}, opset={opset})'
    if (row := ORT.get(version)) is None:
        return [f"ONNX Runtime {version} has no row. Add to ORT in pipeline/opmatrix/matrix/cells.py: {found}"]
    differences = []
    if ir != row.ir:
        differences.append(f"ONNX Runtime {version} reads IR versions up to {ir}, declared: {row.ir}")
    if opset != row.opset:
        differences.append(f"ONNX Runtime {version} reads opsets up to {opset}, declared: {row.opset}")
    return [*differences, *([f"The row that was measured: {found}"] if differences else [])]


def _range(opsets: Sequence[int]) -> str:
    first, last = min(opsets), max(opsets)
    if len(opsets) == last + 1 - first:
        return f"range({first}, {last + 1})"
    return f"{tuple(sorted(opsets))}  # no range: opmatrix.matrix.cells cannot say this yet"
