"""What `doit new` is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `doit new`; "" is one that was not given."""

    schema: str = ""
    domain: str = ""
    name: str = ""
    op_type: str = ""
    override: str = ""
    from_onnx: str = ""
