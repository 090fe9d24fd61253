"""What is known of a survivor: what the inputs nearest to killing it did, and an input that kills it, found by search.

The search draws the inputs of other seeds, and makes one that fails smaller; `adopt-case` takes it as a case.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opmatrix.declaration.torch_signature import has_torch_library
from opmatrix.files import write_bytes
from opmatrix.mutation.gates import Gate
from opmatrix.mutation.tryout import Bench
from opmatrix.step import Server

if TYPE_CHECKING:
    from opmatrix.mutation.run_mutants import Campaign

SEEDS = tuple(f" further {number}" for number in range(1, 3))
EXAMPLES = 200  # of each seed
OUTPUTS = "opmatrix.mutation.outputs"


def prepared(campaign: Campaign, bench: Bench) -> Search | None:
    """Return the search for inputs that kill survivors, in a bench with the kernel as it is; None where the kernel has
    no torch library."""
    if not has_torch_library(campaign.operator.spec):
        return None
    outputs = bench.shadow.root / "outputs.npz"
    search = Search(campaign=campaign, outputs=outputs)
    search.gate(bench, f"{OUTPUTS}:main", search.name, str(outputs), measure=True)
    # Where the kernel itself is wrong, or less exact, an input kills no mutant.
    seeds = tuple(seed for seed in SEEDS if search.draw(bench, seed) and not search.failure(bench, measure=True))
    bench.shadow.make()
    return replace(search, seeds=seeds)


@dataclass(frozen=True, kw_only=True)
class Search:
    """`outputs`: a file with those of the kernel as it is. `seeds`: of the drawn inputs on which that is right."""

    campaign: Campaign
    outputs: Path
    seeds: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.campaign.operator.name

    def known_of(self, bench: Bench) -> dict[str, Any]:
        """Return what the input nearest to killing the mutant in a bench did, and the case that the search found."""
        shadow = bench.shadow
        into = shadow.root / "nearest.json"
        into.unlink(missing_ok=True)
        known: dict[str, Any] = {}
        if self.gate(bench, f"{OUTPUTS}:main", self.name, str(self.outputs), str(into)):
            known |= json.loads(into.read_text(encoding="utf-8"))
        for seed in self.seeds:
            self.draw(bench, seed)
            if message := self.failure(bench):
                known |= {"found": self._adoptable(bench), "message": message.partition(" Keep it as a case")[0]}
                break
        shadow.make()
        return known | {"searched": len(self.seeds) * EXAMPLES}

    def draw(self, bench: Bench, seed: str) -> bool:
        """Give the shadow the drawn inputs of a seed, from an earlier run if nothing that they depend on changed;
        return whether there are any."""
        shadow, key = bench.shadow, self.campaign.dependencies.drawn_key
        kept = self.campaign.paths.mutation(self.name) / "further" / f"{key}{seed.replace(' ', '-')}.cases"
        target = shadow.own_file("draw", shadow.paths.drawn_inputs(self.name).name)
        if kept.is_file():
            shutil.copyfile(kept, target)
            return True
        target.unlink(missing_ok=True)
        if not self.gate(bench, f"{OUTPUTS}:draw", self.name, seed, server="onnx"):
            return False
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(kept, target.read_bytes())  # never half of it
        return True

    def failure(self, bench: Bench, *, measure: bool = False) -> str:
        """Search with the drawn inputs in the shadow; return the message of a failure, or ""."""
        shutil.rmtree(bench.shadow.paths.failing_case(self.name, "x").parent, ignore_errors=True)  # of another mutant
        words = ("register", self.name, "--part", "search")
        tried = bench.tried(Gate(name="search", words=words, server="torch"), measure=measure)
        return "" if tried.passed else tried.why

    def _adoptable(self, bench: Bench) -> str:
        """Copy the found case to the project's build, from which `adopt-case` takes it; return its name."""
        found = bench.shadow.paths.failing_case(self.name, "x").parent
        newest = max(found.glob("*.txt"), key=lambda p: p.stat().st_mtime_ns, default=None)
        if newest is None:
            return ""
        for path in (newest, newest.with_suffix(".cases")):
            target = self.campaign.paths.failing_case(self.name, "x").parent / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                shutil.copyfile(path, target)
        return newest.stem

    def gate(self, bench: Bench, entry: str, *words: str, server: Server = "torch", measure: bool = False) -> bool:
        """Call a function of `OUTPUTS` in a server; return whether it succeeded."""
        return bench.tried(Gate(name=entry, entry=entry, words=words, server=server), measure=measure).passed
