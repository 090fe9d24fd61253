"""The stages of this feature, which `python -m opmatrix` runs: see `opmatrix.commands.stages`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opmatrix.commands.stages import OPERATOR, Stage, argument

STAGES: Mapping[str, Stage] = {
    "bench": (
        "time an operator, which is compiled, and its peers; doit bench also compiles it", OPERATOR,
        argument("--budget", "seconds for a row at most, fewer if its intervals become narrow; with --rev 10 times as "
                  "many", type=float, default=3.0, metavar="SECONDS"),
        argument("--threads", "without it 1, and all processors; may be given again", type=int, action="append"),
        argument("--row", "only rows with this name, or that match a pattern; may be given again", dest="rows",
                  action="append"),
        argument("--no-compile", "leave out torch.compile", dest="compile", action="store_false"),
        argument("--rev", "compare with the build that doit bench --against has made of this revision", default=""),
        argument("--commit", "the commit of that revision", default=""),
    ),
}  # fmt: skip
SPECIAL: Mapping[str, Callable[..., None]] = {}
ONLY_WRITE = ("bench",)
