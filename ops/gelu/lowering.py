"""How torch's gelu becomes ONNX Runtime's."""

from typing import Any


def custom(g: Any, x: Any, approximate: str) -> Any:
    if approximate != "none":
        g.unsupported(
            f"com.microsoft::Gelu has the exact formula alone, and approximate={approximate!r} is another one"
        )
    return g.op("com.microsoft::Gelu", x)
