"""Try the mutants of one operator: those without a valid result, the cheap gates first, survivors in all others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from opmatrix.declaration.load import Operator
from opmatrix.engine.server_pool import Pool
from opmatrix.errors import OpmatrixError
from opmatrix.files import digests_by_path
from opmatrix.matrix.cells import Cell
from opmatrix.mutation import gates, nearest, result
from opmatrix.mutation.dependencies import Dependencies
from opmatrix.mutation.gates import Gate
from opmatrix.mutation.mutant import Mutant
from opmatrix.mutation.result import Result
from opmatrix.mutation.shadow import Shadow
from opmatrix.mutation.tryout import EQUAL, Bench, Limits
from opmatrix.project.paths import Paths
from opmatrix.stages import sanitize

ENTRY = "opmatrix.mutation.entry:main"
_CPP = (".h", ".cc")


class OriginalError(OpmatrixError):
    """The operator as it is does not pass its own gates, or what is built is of another version of it."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file that mutants change: `path` in the project, `target` in a shadow, and its text."""

    path: str
    target: str
    text: str

    @property
    def compiled(self) -> bool:
        return Path(self.target).suffix in _CPP


@dataclass(kw_only=True)
class Campaign:
    """The trial of an operator's mutants, in `jobs` shadows at a time. `said` gets each mutant that was tried with its
    result."""

    paths: Paths
    operator: Operator
    cells: Sequence[Cell]
    sources: Mapping[str, Source]
    dependencies: Dependencies
    jobs: int
    lock: int
    megabytes: float
    said: Callable[[Mutant, Result], None]
    _results: dict[str, Result] = field(default_factory=dict)
    _changed: threading.Lock = field(default_factory=threading.Lock)

    def run(self, mutants: Sequence[Mutant]) -> dict[str, Result]:
        """Return the result of each mutant by its key. Raises OriginalError."""
        path = self.paths.mutation_results(self.operator.name)
        self._results = result.read(path)
        missing = [mutant for mutant in mutants if not self._is_known(mutant)]
        try:
            if missing:
                self._try(missing)
        finally:
            result.write(path, self._results)
        return {mutant.key: self._results[mutant.key] for mutant in mutants}

    def _is_known(self, mutant: Mutant) -> bool:
        known = self._results.get(mutant.key)
        return known is not None and self.dependencies.hold(known, self._mutated(mutant))

    def _mutated(self, mutant: Mutant) -> str:
        return mutant.applied(self.sources[mutant.path].text)

    def _try(self, mutants: Sequence[Mutant]) -> None:
        shadows = [self._shadow(number) for number in range(max(1, min(self.jobs, len(mutants))))]
        with ExitStack() as stack:
            pool = stack.enter_context(closing(Pool(self.paths, entry=ENTRY, lock=self.lock)))
            pool.prepare()  # forks this process, so before threads start
            watched = Pool(shadows[0].paths, entry=ENTRY, lock=self.lock, variables=sanitize.variables())
            stack.enter_context(closing(watched))
            limits = Limits(megabytes=self.megabytes)
            benches = [Bench(shadow=shadow, pool=pool, watched=watched, limits=limits) for shadow in shadows]
            for source in self._of(mutants):
                self._check_original(benches[0], source, self._first(source))
            left = self._each(benches, mutants, self._first, last=False)
            for source in self._of(left):
                self._check_original(benches[0], source, self._further(source))
            left = self._each(benches, left, self._further, last=True)
            nearest.describe(self, benches[0], left)

    def _first(self, source: Source) -> list[Gate]:
        if source.compiled:
            return gates.kernel_gates(self.operator, self.cells)
        return [*gates.python_gates(self.paths, self.operator, Path(source.path).name, self.cells)]

    def _further(self, source: Source) -> list[Gate]:
        return [*gates.survivor_gates(self.operator, self.cells)] if source.compiled else []

    def _check_original(self, bench: Bench, source: Source, asked: Sequence[Gate]) -> None:
        """Let gates try the file as it is: a gate that finds something in it would find each mutant. Its CPU seconds
        are the measure of the limits."""
        name = self.operator.name
        if bench.compiled(source.target, source.text, self.objects if source.compiled else {}) not in ("", EQUAL):
            raise OriginalError(f"build/compile/{name} is not what {source.path} compiles to. Run: doit {name}")
        for gate in asked:
            if not (tried := bench.tried(gate, measure=True)).passed:
                raise OriginalError(
                    f"{name} as it is does not pass {' '.join(gate.words)}: {tried.why}. Run: doit {name}"
                )
        if not source.compiled:
            bench.shadow.restore(source.target)

    @cached_property
    def objects(self) -> dict[str, str]:
        """The digests of the objects that the build has compiled."""
        folder = self.paths.compile_folder(self.operator.name)
        return digests_by_path(sorted(folder.glob("*.o")), folder)

    def _of(self, mutants: Iterable[Mutant]) -> list[Source]:
        return [self.sources[path] for path in dict.fromkeys(mutant.path for mutant in mutants)]

    def _shadow(self, number: int) -> Shadow:
        own = ("export",) if any(not source.compiled for source in self.sources.values()) else ()
        root = self.paths.mutation(self.operator.name) / f"shadow{number}"
        shadow = Shadow(real=self.paths, root=root, name=self.operator.name, uses=self.operator.spec.uses, own=own)
        shadow.make()
        return shadow

    def _each(
        self,
        benches: Sequence[Bench],
        mutants: Sequence[Mutant],
        asked: Callable[[Source], Sequence[Gate]],
        *,
        last: bool,
    ) -> list[Mutant]:
        """Let gates try each mutant, in as many threads as there are benches, and return the survivors. `last`: no gate
        follows, so that their results are kept too."""
        free: SimpleQueue[Bench] = SimpleQueue()
        for bench in benches:
            free.put(bench)

        def survives(mutant: Mutant) -> bool:
            source, bench = self.sources[mutant.path], free.get()
            try:
                objects = self.objects if source.compiled else {}
                found = bench.result(source.target, self._mutated(mutant), asked(source), objects)
                if not source.compiled:
                    bench.shadow.restore(source.target)
            finally:
                free.put(bench)
            if last or found.outcome != "survived":
                self.keep(mutant, found)
            return found.outcome == "survived"

        with ThreadPoolExecutor(len(benches)) as threads:
            return [mutant for mutant, left in zip(mutants, threads.map(survives, mutants), strict=True) if left]

    def describe(self, mutant: Mutant, known: Mapping[str, Any]) -> None:
        """Add to the result of a survivor what is known of it."""
        self._results[mutant.key] = replace(self._results[mutant.key], nearest=known)

    def keep(self, mutant: Mutant, found: Result) -> None:
        """Keep a result with what it depends on."""
        depends = self.dependencies.of(
            found.outcome, mutated=self._mutated(mutant), case=found.case, part=found.part
        )
        with self._changed:
            self._results[mutant.key] = replace(found, depends=depends)
            self.said(mutant, found)
