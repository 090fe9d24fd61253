"""The row that `doit probe` measured of one torch or ONNX Runtime, and how it differs from opmatrix.matrix.cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opmatrix.matrix.cells import TORCH_EXPORTERS, Exporter, Ort, Torch, ir_version


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


def torch_row(found: Iterable[Export]) -> Torch:
    """Return the measured row. Opsets with a gap are no range: then it has the longest part without one."""
    tried = list(found)
    legacy, dynamo = (
        _range(one.opset for one in tried if one.exporter == exporter and one.runs) for exporter in TORCH_EXPORTERS
    )
    reason = "" if dynamo else "wrote none of the opsets that were tried"
    return Torch(legacy=legacy, dynamo=dynamo, no_dynamo=reason, label=_range(one.opset for one in tried if one.label))


def source(version: str, row: Torch | Ort) -> str:
    """Return a row as opmatrix.matrix.cells contains it: ``"1.33": Ort(ir=14, opset=27)``."""
    if isinstance(row, Ort):
        return f'"{version}": Ort(ir={row.ir}, opset={row.opset})'
    parts = [f"{name}={opsets!r}" for name in ("legacy", "dynamo", "label") if (opsets := getattr(row, name))]
    return f'"{version}": Torch({", ".join([*parts, *(["no_dynamo=..."] if row.no_dynamo else [])])})'


def torch_differences(version: str, found: Sequence[Export], row: Torch) -> list[str]:
    """Return how the measured exports differ from a row, with the measured row last."""
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
    return [*differences, *([_correct(version, torch_row(found))] if differences else [])]


def ort_differences(version: str, found: Ort, row: Ort) -> list[str]:
    """Return how the newest IR version and opset that an ONNX Runtime reads differ from a row, with the measured row
    last."""
    differences = []
    if found.ir != row.ir:
        differences.append(f"ONNX Runtime {version} reads IR versions up to {found.ir}, declared: {row.ir}")
    if found.opset != row.opset:
        differences.append(f"ONNX Runtime {version} reads opsets up to {found.opset}, declared: {row.opset}")
    return [*differences, *([_correct(version, found)] if differences else [])]


def _correct(version: str, row: Torch | Ort) -> str:
    return f"The row that was measured: {source(version, row)}"


def _range(opsets: Iterable[int]) -> range:
    """Return the longest run of consecutive opsets, of equal ones the newest."""
    best = now = range(0)
    for opset in sorted({*opsets}):
        now = range(now.start, opset + 1) if now and opset == now.stop else range(opset, opset + 1)
        best = max(best, now, key=len) if len(now) != len(best) else now
    return best
