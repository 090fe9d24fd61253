"""Leave the guards of a captured program out of its export."""

from __future__ import annotations

import torch

_GUARDS = "_guards_code"


def unguarded(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return the program without the text that asserts what its capture assumed of the inputs' sizes.

    No model could hold it. torch 2.9 compiles it anew in the export, where a name that it uses, "L", is not defined any
    more; newer versions run it there and throw it away. A private name of torch: where it is gone, nothing is done.
    """
    if hasattr(program, _GUARDS):
        setattr(program, _GUARDS, [])
    return program
