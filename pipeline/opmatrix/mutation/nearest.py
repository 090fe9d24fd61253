"""What is known of a survivor: what the inputs nearest to killing it did, and an input that kills it, found by search.

The search draws the inputs of other seeds, and makes one that fails smaller; `adopt-case` takes it as a case.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opmatrix.declaration.torch_signature import has_torch_library
from opmatrix.mutation.gates import Gate
from opmatrix.mutation.mutant import Mutant
from opmatrix.mutation.tryout import Bench

if TYPE_CHECKING:
    from opmatrix.mutation.run_mutants import Campaign

SEEDS = tuple(f" further {number}" for number in range(1, 4))  # of 200 inputs each
OUTPUTS = "opmatrix.mutation.outputs"


def describe(campaign: Campaign, bench: Bench, survivors: Sequence[Mutant]) -> None:
    """Add to the results of survivors of a kernel with a torch library what is known of them."""
    compiled = [m for m in survivors if m.part == "kernel"]
    if not compiled or not has_torch_library(campaign.operator.spec):
        return
    search = _Search(campaign, bench)
    search.prepare(compiled[0])
    for mutant in compiled:
        campaign.describe(mutant, search.known_of(mutant))


class _Search:
    """The search for inputs that kill survivors, in one bench."""

    def __init__(self, campaign: Campaign, bench: Bench) -> None:
        self._campaign, self._bench = campaign, bench
        self._name = campaign.operator.name
        self._folder = campaign.paths.mutation(self._name) / "further"
        self._outputs = bench.shadow.root / "outputs.npz"
        self._seeds: list[str] = []

    def prepare(self, mutant: Mutant) -> None:
        """Compute the outputs of the kernel as it is, and draw the inputs of all seeds on which it is right."""
        self._compile(mutant, self._campaign.text(mutant))
        self._gate(f"{OUTPUTS}:main", self._name, str(self._outputs))
        for seed in SEEDS:
            self._draw(seed)
            if self._found():
                continue  # the kernel itself is wrong there, or less exact: it kills no mutant
            self._seeds.append(seed)
        self._bench.shadow.make()

    def known_of(self, mutant: Mutant) -> dict[str, Any]:
        """Return what the nearest case did, and the case that the search found."""
        shadow = self._bench.shadow
        self._compile(mutant, mutant.applied(self._campaign.text(mutant)))
        into = shadow.root / "nearest.json"
        into.unlink(missing_ok=True)
        known: dict[str, Any] = {}
        if self._gate(f"{OUTPUTS}:main", self._name, str(self._outputs), str(into)):
            known |= json.loads(into.read_text())
        for seed in self._seeds:
            self._draw(seed)
            if message := self._found():
                known |= {"found": self._adoptable(), "message": message.partition(" Keep it as a case")[0]}
                break
        shadow.make()
        return known | {"searched": len(self._seeds) * 200}

    def _compile(self, mutant: Mutant, text: str) -> None:
        self._bench.compiled(self._campaign.target(mutant), text, self._campaign.objects(mutant))

    def _draw(self, seed: str) -> None:
        """Give the shadow the drawn inputs of a seed, from an earlier run if nothing that they depend on changed."""
        shadow, depends = self._bench.shadow, self._campaign.dependencies
        key = depends.drawn_key
        kept = self._folder / f"{key}{seed.replace(' ', '-')}.cases"
        target = shadow.own_file("draw", shadow.paths.drawn_inputs(self._name).name)
        if kept.is_file():
            shutil.copyfile(kept, target)
            return
        self._gate(f"{OUTPUTS}:draw", self._name, seed, server="onnx")
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, kept)

    def _found(self) -> str:
        """Search with the drawn inputs in the shadow; return the message of a failure, or ""."""
        tried = self._bench.tried(
            Gate(name="search", words=("register", self._name, "--part", "search"), server="torch"), measure=True
        )
        return "" if tried.passed else tried.why

    def _adoptable(self) -> str:
        """Copy the found case to the project's build, from which `adopt-case` takes it; return its name."""
        found = self._bench.shadow.paths.failing_case(self._name, "x").parent
        newest = max(found.glob("*.txt"), key=lambda p: p.stat().st_mtime_ns, default=None)
        if newest is None:
            return ""
        for path in (newest, newest.with_suffix(".cases")):
            target = self._campaign.paths.failing_case(self._name, "x").parent / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                shutil.copyfile(path, target)
        return newest.stem

    def _gate(self, entry: str, *words: str, server: str = "torch") -> bool:
        gate = Gate(name=entry, entry=entry, words=words, server="onnx" if server == "onnx" else "torch")
        return self._bench.tried(gate, measure=True).passed
