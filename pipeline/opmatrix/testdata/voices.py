"""Which of three voices is alone: the reference, the kernel, or vectors from elsewhere. Of two, neither is blamed."""

from __future__ import annotations

from dataclasses import dataclass

from opmatrix.testdata.compare import Comparison


@dataclass(frozen=True, kw_only=True)
class Voices:
    """How the voices of one case agree, pair by pair: each the comparison of the output that differs most."""

    reference_kernel: Comparison
    reference_vectors: Comparison
    kernel_vectors: Comparison
    source: str  # of the vectors

    def __str__(self) -> str:
        """Return the worst comparison and who is alone, or "" where all agree."""
        vectors = f"the vectors ({self.source})"
        pairs = (
            (self.reference_kernel, "reference", "kernel", vectors),
            (self.reference_vectors, "reference", vectors, "kernel"),
            (self.kernel_vectors, "kernel", vectors, "reference"),
        )
        wrong = [pair for pair in pairs if not pair[0].ok]
        if not wrong:
            return ""
        found, first, second, third = wrong[0]
        if len(wrong) == 3:
            return f"{found}. Reference, kernel and {vectors} all differ"
        if len(wrong) == 1:
            verb = "agree" if third == vectors else "agrees"
            return f"{found}. {first.capitalize()} and {second} disagree; {third} {verb} with both"
        ((alone,),) = [{*wrong[0][1:3]} & {*wrong[1][1:3]}]
        found = wrong[1][0]  # with the vectors, whose value is then the expected one
        others = " and ".join(sorted({first, second, third} - {alone}, key=lambda voice: (voice == vectors, voice)))
        if alone == vectors:
            return f"{found}. The vectors ({self.source}) alone differ: {others} agree"
        return f"{found}. The {alone} alone differs: {others} agree"
