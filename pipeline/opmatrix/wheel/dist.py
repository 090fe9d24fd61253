"""Build the wheel of the chosen operators, from the libraries of the stage link-wheel, and run it before writing it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import DistError, missing
from opmatrix.basics.features import provided
from opmatrix.basics.files import write_bytes, write_list, write_text
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import chosen_cells, installed
from opmatrix.signature import versions
from opmatrix.signature.signature import callers_schema, has_torch_library, stable_abi_since
from opmatrix.toolchain import ort_headers, symbols
from opmatrix.toolchain.find import find_toolchain
from opmatrix.wheel import contents, pack, settings, sources
from opmatrix.wheel.settings import Dist


def run(paths: Paths, dist: Dist, operators: Sequence[Operator], *, unverified: bool = False) -> None:
    """Write the wheel to build/dist/, and its record to build/dist.json. Raises DistError, and then writes nothing.

    With `unverified`, the wheel is neither compared nor run, and its version ends in ``+unverified``.
    """
    cells = chosen_cells(paths)
    shared = provided("signed results")(paths, dist.operators, cells)
    proof: dict[str, Any] | None = None
    if unverified:
        dist = replace(dist, version=f"{dist.version}{'.' if '+' in dist.version else '+'}unverified")
    else:
        used = installed()
        proof = {"torch": used.torch, "onnxruntime": used.onnxruntime, **pack.check(paths, operators, cells)}
    opmatrix = metadata.version("opmatrix")
    libraries = [paths.linked_library(dist.name, side) for side in settings.sides(operators)]
    if lost := next((path for path in libraries if not path.is_file()), None):
        raise DistError(missing(lost, run="python -m opmatrix link-wheel"))
    needs = [symbols.read_symbols(path) for path in libraries]
    platform = contents.platform(needs)
    files = contents.files(paths, dist, operators, opmatrix=opmatrix)
    command = [*find_toolchain(os.environ).compiler, "--version"]
    version = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    about = {
        "name": dist.name,
        "version": dist.version,
        "verified": proof or False,
        "platform": platform,
        "needs": contents.highest(needs),
        "operators": {o.name: _about(paths, o) for o in operators},
        "source": _source(paths, operators),
        "shared_cache": shared,
        "libraries": {name: _digest(c) for name, c in sorted(files.items()) if name.endswith(".so")},
        "made_with": {
            "opmatrix": opmatrix,
            "compiler": version.partition("\n")[0].strip(),  # without its path
            "onnxruntime headers": ort_headers.find_headers(os.environ).version,
            **contents.header_packages(operators),
        },
    }
    text = json.dumps(about, indent=2) + "\n"
    files[f"{dist.name}/dist.json"] = text.encode()
    packed = pack.pack(dist, platform, files, contents.licenses(paths.root, dist, operators), opmatrix=opmatrix)
    ran = "not verified: neither compared with what was verified nor run"
    if proof:
        ran = _run(paths, dist, operators, cells, packed)
    path = paths.dist / pack.file_name(dist, platform)
    for other in paths.dist.glob("*.whl"):
        if other != path:  # an upload of build/dist/* must not contain an older wheel
            other.unlink()
    write_bytes(path, packed)
    write_list(paths.unverified_list if unverified else paths.wheel_list, [path], root=paths.root)
    write_text(paths.unverified_record if unverified else paths.dist_record, text)
    print(ran)
    print(f"{path.relative_to(paths.root)}: {len(packed):,} bytes, sha256 {_digest(packed)}")


def _run(paths: Paths, dist: Dist, operators: Sequence[Operator], cells: Sequence[Cell], wheel: bytes) -> str:
    """Run the wheel, and return what ran. Raises DistError."""
    from opmatrix.wheel import run_unpacked  # imports numpy and onnx, which an unverified wheel does not need

    # `operators` were read in a child process, so that `Model.around` cannot be called.
    callable_operators = [load_operator(paths, operator.name) for operator in operators]
    with tempfile.TemporaryDirectory(prefix="opmatrix-dist-") as folder:
        return run_unpacked.run(
            wheel,
            run_unpacked.WheelRun(
                paths=paths,
                name=dist.name,
                operators=callable_operators,
                cells=cells,
                torch=installed().torch,
                folder=Path(folder),
            ),
        )


def _about(paths: Paths, operator: Operator) -> dict[str, Any]:
    spec = operator.spec
    return {
        "summary": spec.summary,
        "torch": {
            "schema": callers_schema(spec),
            "since": stable_abi_since(spec) if has_torch_library(spec) else None,
            "gradient": settings.has_gradient(paths, spec),
        }
        if spec.torch
        else None,
        "onnx": {
            "domain": spec.onnx.domain,
            "op_type": spec.onnx.op_type,
            "since_version": spec.onnx.since_version,
            "schema_versions": list(versions.versions(spec)),
            "versions": list(spec.onnx.versions),
        },
        "uses": list(spec.uses),
    }


def _source(paths: Paths, operators: Sequence[Operator]) -> dict[str, Any]:
    """Return the commit, whether the sources of the wheel differ from it, and their hashes."""
    files = settings.sources(paths, operators)
    commit = sources.commit(paths.root)
    return {
        "commit": commit,
        "dirty": sources.dirty(paths.root, files) if commit else None,
        "files": {str(p.relative_to(paths.root)): _digest(p.read_bytes()) for p in files},
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
