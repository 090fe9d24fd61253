"""The lines that a person writes for one operator, the seeds' group norm: in the seeds' repository, and here.

    git clone --depth 1 https://github.com/onnx/tutorials
    pip install --target pygount pygount==3.2.0
    PYTHONPATH=pygount ./run python benchmarks/lines.py tutorials/PyTorchCustomOperator

pygount counts all lines. Only this benchmark needs it, so it is no requirement of this project. It counts a line with
only brackets as blank, and a docstring as a comment.

Both sides have the same features: the seeds' operator takes float32, runs in one model with one case, and has no
gradient. tests/projects/minimal declares the same, and tests/operators/test_minimal.py verifies it with both exporters.
The real operator, in ops/group_norm, does more, and is counted below. On both sides, prose and the files that build
several operators do not count: our dodo.py and pyproject.toml; the seeds need a setup.py and a CMakeLists.txt for each
operator.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GOAL = 1 / 3
THEIRS = (
    "pytorch_custom_op/custom_group_norm.cpp",
    "pytorch_custom_op/setup.py",
    "pytorch_custom_op/export_custom_op.py",
    "ort_custom_op/custom_op.cc",
    "ort_custom_op/custom_op.h",
    "ort_custom_op/CMakeLists.txt",
    "ort_custom_op/custom_op_test.cc",
)
OURS = ("ops/group_norm/spec.py", "ops/group_norm/cases.py", "ops/group_norm/reference.py",
        "native/group_norm/kernel.h")  # fmt: skip
# What the real operator has in addition: other opsets without a custom node, and gradients of any order.
MORE = ("ops/group_norm/lowering.py", "ops/group_norm/torch_op.py")


@dataclass(frozen=True, kw_only=True)
class Lines:
    """A number of lines by kind."""

    all: int
    code: int
    comments: int
    blank: int

    @classmethod
    def sum(cls, parts: Iterable[Lines]) -> Lines:
        counted = [*parts]
        return cls(
            **{kind: sum(getattr(part, kind) for part in counted) for kind in ("all", "code", "comments", "blank")}
        )

    def __str__(self) -> str:
        return f"{self.all:>6} {self.code:>6} {self.comments:>9} {self.blank:>6}"


def count(path: Path) -> Lines:
    """Count the lines of one file."""
    from pygount import SourceAnalysis

    found = SourceAnalysis.from_file(str(path), "all", encoding="utf-8")
    if not found.is_countable:
        sys.exit(f"lines.py: {path}: pygount cannot count it: {found.state_info or found.state.name}")
    return Lines(
        all=found.line_count, code=found.source_count, comments=found.documentation_count, blank=found.empty_count
    )


def show(heading: str, folder: Path, names: Sequence[str]) -> Lines:
    """Print a line for each file and their sum, and return it."""
    print(f"\n{heading:<46} {'lines':>6} {'code':>6} {'comments':>9} {'blank':>6}")
    counted = {name: count(folder / name) for name in names}
    for name, lines in counted.items():
        print(f"  {name:<44} {lines}")
    whole = Lines.sum(counted.values())
    print(f"  {'all':<44} {whole}")
    return whole


def share(mine: Lines, theirs: Lines) -> str:
    return f"{mine.all / theirs.all:.0%} of the lines, {mine.code / theirs.code:.0%} of the code"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("seeds", type=Path, help="the folder PyTorchCustomOperator of the seeds' repository")
    seeds = parser.parse_args().seeds
    try:
        import pygount
    except ImportError:
        sys.exit("lines.py: pygount is not installed; `pip install --target pygount pygount==3.2.0`, "
                 "and set PYTHONPATH=pygount")  # fmt: skip
    if missing := [name for name in THEIRS if not (seeds / name).is_file()]:
        sys.exit(f"lines.py: {seeds} has no {missing[0]}; give the folder PyTorchCustomOperator of onnx/tutorials")
    print(f"pygount {pygount.__version__}")
    theirs = show("the seeds' group norm", seeds, THEIRS)
    same = show("the same here, in tests/projects/minimal", ROOT / "tests/projects/minimal", OURS)
    real = show("the real one", ROOT, (*OURS, *MORE))
    print(f"\nthe same here: {share(same, theirs)}; goal: a third of either")
    print(f"the real one: {share(real, theirs)}")
    return int(same.all > theirs.all * GOAL or same.code > theirs.code * GOAL)


if __name__ == "__main__":
    sys.exit(main())
