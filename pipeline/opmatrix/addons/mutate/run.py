"""Try the mutants of one operator: those without a valid result, the cheap gates first, survivors in all others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath
from queue import SimpleQueue

from opmatrix.addons.mutate import gates, result
from opmatrix.addons.mutate.gates import Gate
from opmatrix.addons.mutate.mutant import Mutant
from opmatrix.addons.mutate.result import Dependencies, Result
from opmatrix.addons.mutate.tryout import Bench
from opmatrix.basics.errors import OpmatrixError
from opmatrix.basics.files import digests_by_path
from opmatrix.basics.step_log import Progress
from opmatrix.declaration.backward_operator import backward_of
from opmatrix.declaration.load import Operator
from opmatrix.engine.server_pool import Pool
from opmatrix.engine.shadow import COMPILED, Shadow
from opmatrix.ort_checks import sanitize
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths

INLINE_KERNEL = "kernel.h"  # what codegen writes of a kernel in spec.py
ENTRY = "opmatrix.addons.mutate.gates:main"
# The folders of build/ that the gates of a mutant write, by what the mutant is of.
_OWN: Mapping[str, Sequence[str]] = {
    "kernel": COMPILED,
    "lowering": ("export",),
    "torch_op": ("export",),
    "shape": ("generated", "compile", "data", "draw", "export"),
}


class OriginalError(OpmatrixError):
    """The operator as it is does not pass its own gates, or what is built is of another version of it."""


@dataclass(kw_only=True)
class Campaign:
    """The trial of an operator's mutants, `jobs` at a time. `said` gets each mutant that was tried with its result."""

    paths: Paths
    operator: Operator
    cells: Sequence[Cell]
    dependencies: Dependencies
    jobs: int
    lock: int
    megabytes: float
    said: Callable[[Mutant, Result], None]
    _results: dict[str, Result] = field(default_factory=dict)
    _changed: threading.RLock = field(default_factory=threading.RLock)
    _progress: Progress = field(default_factory=lambda: Progress(quiet=0))
    _done: int = 0
    _total: int = 0

    def run(self, mutants: Sequence[Mutant]) -> dict[str, Result]:
        """Return the result of each mutant by its key. Raises OriginalError."""
        self._results = result.read(self.paths.mutation_results(self.operator.name))
        if missing := [mutant for mutant in mutants if not self._is_known(mutant)]:
            self._total = len(missing)
            try:
                self._try(missing)
            finally:
                self._progress.clear()
        return {mutant.key: self._results[mutant.key] for mutant in mutants}

    def text(self, mutant: Mutant) -> str:
        """Return the text that a mutant changes: a file, or a kernel in spec.py."""
        kernel = self.operator.spec.kernel
        if mutant.part == "kernel" and kernel is not None:
            return kernel
        return (self.paths.root / mutant.path).read_text(encoding="utf-8")

    def target(self, mutant: Mutant) -> str:
        """Return the file of a shadow that has the changed text."""
        if mutant.part == "kernel" and self.operator.spec.kernel is not None:
            return (self.paths.generated(self.operator.name) / INLINE_KERNEL).relative_to(self.paths.root).as_posix()
        return mutant.path

    def objects(self, mutant: Mutant) -> Mapping[str, str]:
        """Return the digests of the objects that the build has compiled; {} for a mutant that is not compiled."""
        folder = self.paths.compile_folder(self.operator.name)
        return digests_by_path(sorted(folder.glob("*.o")), folder) if mutant.part == "kernel" else {}

    def _is_known(self, mutant: Mutant) -> bool:
        known = self._results.get(mutant.key)
        return known is not None and self.dependencies.hold(known, mutant.applied(self.text(mutant)))

    def _try(self, mutants: Sequence[Mutant]) -> None:
        name = self.operator.name
        watched_root = Paths(self.paths.mutation(name) / "shadow-kernel-0")
        with ExitStack() as stack:
            pool = stack.enter_context(closing(Pool(self.paths, entry=ENTRY, lock=self.lock)))
            pool.prepare()  # forks this process, so before threads start
            variables = sanitize.variables() if any(m.part == "kernel" for m in mutants) else {}
            watched = Pool(watched_root, entry=ENTRY, lock=self.lock, variables=variables)
            stack.enter_context(closing(watched))
            servers: dict[str | None, str] = {}
            if any(mutant.part in ("lowering", "torch_op") for mutant in mutants):
                servers["torch"] = "export"  # it has the imports of both
            for part in dict.fromkeys(mutant.part for mutant in mutants):
                tried = [mutant for mutant in mutants if mutant.part == part]
                shared = partial(
                    Bench, pool=pool, watched=watched, cpu=dict[str, float](), megabytes=self.megabytes, servers=servers
                )
                shadows = [self._shadow(part, number) for number in range(max(1, min(self.jobs, len(tried))))]
                self._try_part([shared(shadow=shadow) for shadow in shadows], tried)

    def _shadow(self, part: str, number: int) -> Shadow:
        root = self.paths.mutation(self.operator.name) / f"shadow-{part}-{number}"
        spec = self.operator.spec
        uses = (*spec.uses, *filter(None, [backward_of(spec)]))
        kept = gates.kept_lowerings(self.paths, self.operator) if part == "lowering" else []
        shadow = Shadow(real=self.paths, root=root, name=self.operator.name, own=_OWN[part], exported=kept, uses=uses)
        if part == "kernel":
            shadow.make()
        else:
            shadow.make_anew()
        return shadow

    def _try_part(self, benches: Sequence[Bench], mutants: Sequence[Mutant]) -> None:
        asked, needed = self._gates(mutants[0])
        original = Original(campaign=self, bench=benches[0], mutant=mutants[0], gates=asked[:needed])
        if mutants[0].part == "kernel":  # its shadow's objects are those of all mutants
            original.check(needed)
        else:
            original = replace(original, bench=replace(benches[0], shadow=self._shadow(mutants[0].part, len(benches))))
        free: SimpleQueue[Bench] = SimpleQueue()
        for bench in benches:
            free.put(bench)

        def try_one(mutant: Mutant) -> None:
            bench = free.get()
            try:
                if mutant.part == "shape":  # of which no gate may find what an earlier mutant left
                    bench.shadow.make_anew()
                changed = mutant.applied(self.text(mutant))

                def before(number: int) -> None:
                    original.check(number + 1)
                    self.show(f"{mutant.path}:{mutant.line} in {asked[number].name}")

                compiled = bench.compiled(self.target(mutant), changed, self.objects(mutant))
                found = compiled or bench.judged(asked, before)
            finally:
                free.put(bench)
            self.keep(mutant, found)

        with ThreadPoolExecutor(len(benches)) as threads:
            try:
                for _ in threads.map(try_one, mutants):
                    pass
            except BaseException:  # such as Ctrl-C: what is being tried ends with the servers
                threads.shutdown(wait=False, cancel_futures=True)
                for bench in benches:
                    bench.close()
                raise

    def _gates(self, mutant: Mutant) -> tuple[list[Gate], int]:
        """Return the gates, the cheap ones first, and how many of them the original must pass: the others are the same
        in other cells."""
        cells = self.cells
        if mutant.part == "kernel":
            further = gates.survivor_gates(self.operator, cells, stamp=self.dependencies.races_key)
            found = [*gates.kernel_gates(self.operator, cells), *further]
            return found, len(found)
        file = PurePosixPath(mutant.path).name
        first = [*gates.python_gates(self.paths, self.operator, file, gates.first_cells(cells))]
        return [*first, *gates.further_python_gates(self.paths, self.operator, file, cells)], len(first)

    def show(self, what: str) -> None:
        """Show how many mutants are tried, and what is tried now. Called by worker threads, too."""
        with self._changed:
            self._progress.show(f"{self._done} of {self._total} mutants, now {what}", self._done, self._total)

    def keep(self, mutant: Mutant, fate: Result) -> None:
        """Keep a result with what it depends on."""
        changed = mutant.applied(self.text(mutant))
        depends = self.dependencies.of(fate.outcome, mutated=changed, case=fate.case, part=fate.part)
        with self._changed:
            self._results[mutant.key] = replace(fate, depends=depends)
            result.write(self.paths.mutation_results(self.operator.name), self._results)  # SIGKILL loses one
            self._done += 1
            self._progress.clear()
            self.said(mutant, fate)


@dataclass(kw_only=True)
class Original:
    """The file of a mutant as it is, which must pass each gate before a mutant meets it: a gate that finds something in
    the original would find each mutant. Its CPU seconds are the measure of the limits."""

    campaign: Campaign
    bench: Bench
    mutant: Mutant
    gates: Sequence[Gate]
    _passed: int = -1  # before it is compiled
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def check(self, count: int) -> None:
        """Let the first `count` gates try the original. Raises OriginalError."""
        name = self.campaign.operator.name
        with self._one_at_a_time:
            if self._passed < 0:
                campaign, mutant = self.campaign, self.mutant
                target, original = campaign.target(mutant), campaign.objects(mutant)
                compiled = self.bench.compiled(target, campaign.text(mutant), original, measure=True)
                if mutant.part == "kernel" and (compiled is None or compiled.outcome != "equivalent"):
                    built = campaign.paths.compile_folder(name).relative_to(campaign.paths.root)
                    raise OriginalError(f"{built} is not what {mutant.path} compiles to. Run: doit {name}")
                self._passed = 0
            while self._passed < min(count, len(self.gates)):
                gate = self.gates[self._passed]
                self.campaign.show(f"{name} as it is in {gate.name}")
                if (tried := self.bench.tried(gate, measure=True)).outcome != "survived":
                    words = " ".join(gate.words)
                    raise OriginalError(f"{name} as it is does not pass {words}: {tried.why}. Run: doit {name}")
                self._passed += 1
