"""Find what does not fit between a declaration and the C++ files that stand in native/<name>/."""

from __future__ import annotations

from collections.abc import Iterator, Set

from pipeline.check.mistake import Mistake
from pipeline.schema import KERNEL, OWN_ORT, OWN_TORCH, has_kernel, has_kernel_object, has_torch_library
from pipeline.spec import OpSpec


def written(spec: OpSpec, files: Set[str]) -> Iterator[Mistake]:
    """Yield what does not fit; the field is the name of a file in native/<name>/."""
    libraries = [("torch", OWN_TORCH, has_torch_library(spec)), ("ONNX Runtime", OWN_ORT, has_kernel(spec))]
    needed = [(framework, file) for framework, file, has_library in libraries if has_library and file not in files]
    if needed and not has_kernel_object(spec, files):
        bindings = " and ".join(framework for framework, _ in needed)
        own = " and ".join(file for _, file in needed)
        yield Mistake(
            KERNEL,
            f"missing; the generated binding of {bindings} calls it. Write it, or bring {own} of your own beside it",
        )
    for framework, file, has_library in libraries:
        if file in files and not has_library:
            yield Mistake(file, f"nothing compiles it: as ops/{spec.name}/spec.py declares the operator, no library "
                          f"of ours gives it to {framework}. Remove this file, or change the declaration")  # fmt: skip
