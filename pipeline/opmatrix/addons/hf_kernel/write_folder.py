"""Write the operators of the wheel that dist has built as a folder that the Hugging Face package `kernels` loads, and
run it before. Format: that of kernels 0.17 (its load.py, variants.py and importer.py). It imports the package of
metadata.json from anywhere, so that imports of the wheel's name become those of that package."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from opmatrix.basics.errors import DistError, many, missing
from opmatrix.basics.files import digests_by_path, read_list, write_list, write_text
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.project.paths import Paths
from opmatrix.project.settings import chosen_cells, installed
from opmatrix.signature.signature import has_torch_library
from opmatrix.spec import OpSpec
from opmatrix.wheel import contents
from opmatrix.wheel.settings import Dist

VARIANT = "torch-stable-abi29-cpu-x86_64-linux"  # OLDEST_TORCH of wheel/runtime/register.py
BUILD = PurePosixPath("build", VARIANT).as_posix()  # of the folder, not of the project
_MINVER = "0.16.0"  # the first version of kernels that knows variants over the stable ABI
# Modules of an operator that only exports need, and what they import.
_OF_ONNX = ("schema", "lowering", "own_lowering")


def package_name(dist: Dist, wheel: Mapping[str, bytes]) -> str:
    """Return the name under which the kernel is imported: another one for other contents."""
    return f"_{dist.name}_{hashlib.sha256(wheel[f'{dist.name}/dist.json']).hexdigest()[:8]}"


def folder_files(dist: Dist, specs: Sequence[OpSpec], wheel: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of the folder by their paths. Raises DistError if no operator has a library for torch."""
    served = [spec for spec in specs if spec.torch and not spec.torch.overrides]
    if not any(map(has_torch_library, served)):
        raise DistError("none of the operators has a library for torch, which is all that a kernel of Hugging Face "
                        "has: leave out --format hf-kernel")  # fmt: skip
    package, about = package_name(dist, wheel), json.loads(wheel[f"{dist.name}/dist.json"])
    kept = _without_onnx(dist.name, wheel)
    imports, own = re.compile(rf"^(\s*(?:from|import) ){dist.name}\b".encode(), re.MULTILINE), rb"\1" + package.encode()
    found = {path: imports.sub(own, wheel[path]) if path.endswith(".py") else wheel[path] for path in kept}
    modules = {spec.name: _modules(f"{dist.name}/_operators/{spec.name}", kept) for spec in specs if spec.torch}
    variables = contents.variables(dist, served, modules) | {"name": package, "package": package}
    for path, template in (("__init__.py", "hf_kernel.py.j2"), ("_operators/__init__.py", "operators.py.j2")):
        found[f"{dist.name}/{path}"] = contents.render(template, variables).encode()
    inside = {path.removeprefix(f"{dist.name}/"): content for path, content in found.items()}
    inside |= {f"licenses/{path.partition('/licenses/')[2]}": content for path, content in wheel.items()
               if ".dist-info/licenses/" in path}  # fmt: skip
    inside["metadata.json"] = (json.dumps(_metadata(dist, package), indent=2) + "\n").encode()
    readme = contents.render("hf_kernel_readme.md.j2", variables | _shown(dist, specs, about))
    return {"README.md": readme.encode(), **{f"{BUILD}/{path}": inside[path] for path in sorted(inside)}}


def _metadata(dist: Dist, package: str) -> dict[str, Any]:
    return {
        "id": package,
        "name": dist.name.replace("_", "-"),
        "version": int(re.findall(r"\d+", dist.version.partition("!")[2] or dist.version)[0]),
        "kernels-minver": _MINVER,
        "license": dist.license or "unknown",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }


def _shown(dist: Dist, specs: Sequence[OpSpec], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the README says."""
    proof = about["verified"]
    cells = f"{many(proof['cells'], 'cell')} and {many(proof['checks'], 'check')}" if proof else ""
    functions = contents.variables(dist, [s for s in specs if s.torch and not s.torch.overrides], {})["operators"]
    return {
        "name": dist.name,
        "version": about["version"],
        "license": (dist.license or "unknown").lower(),
        "operators": [f | {"gradient": about["operators"][f["name"]]["torch"]["gradient"]} for f in functions],
        "platform": about["platform"],
        "variant": VARIANT,
        "minver": _MINVER,
        "verified": f"Verified: {cells}, in torch {proof['torch'].partition('+')[0]}, and each case from this folder."
        if proof
        else "Not verified.",
        "onnx_only": [spec.name for spec in specs if not spec.torch or spec.torch.overrides],
        "opmatrix": about["made_with"]["opmatrix"],
        "commit": about["source"]["commit"],
    }


def _without_onnx(name: str, wheel: Mapping[str, bytes]) -> list[str]:
    """Return the files of a wheel that torch needs: modules that `functional` and the operators' modules for torch
    import, directly or not; and files that are no modules."""
    entries = {f"{name}/functional.py", f"{name}/_registered.py"}
    entries |= {path for path in wheel if path.startswith(f"{name}/_operators/") and path.endswith(".py")
                and PurePosixPath(path).stem not in _OF_ONNX}  # fmt: skip
    reached: set[str] = set()
    waiting = [*entries]
    while waiting:
        path = waiting.pop()
        if path in wheel and path not in reached:
            reached.add(path)
            waiting += _imported(wheel[path].decode(), name)
    folders = {f"{parent}/__init__.py" for path in reached for parent in PurePosixPath(path).parents}
    data = {path for path in wheel if path.startswith(f"{name}/") and not path.endswith((".py", "_ort.so"))}
    return sorted(reached | data | (folders & wheel.keys()))


def _imported(text: str, name: str) -> Iterator[str]:
    """Yield the paths of the modules of a package that a module imports, and some that are none."""
    for node in ast.walk(ast.parse(text)):
        named: Iterable[str] = ()
        if isinstance(node, ast.Import):
            named = (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        for module in named:
            if module.startswith(f"{name}."):
                yield f"{module.replace('.', '/')}.py"


def _modules(folder: str, kept: Iterable[str]) -> list[str]:
    paths = [PurePosixPath(path) for path in kept]
    return [p.stem for p in paths if str(p.parent) == folder and p.suffix == ".py" and p.stem != "__init__"]


def run(paths: Paths, dist: Dist, operators: Sequence[Operator], *, unverified: bool = False) -> None:
    """Write build/hf-kernel/, and the list of its files. Raises DistError, and then leaves the folder as it was.

    With `unverified`, the wheel is the one that dist --unverified has built, and the folder is not run.
    """
    wheel = _read_wheel(paths, unverified=unverified)
    files = folder_files(dist, [operator.spec for operator in operators], wheel)
    ran = "not verified: neither compared with what was verified nor run"
    if not unverified:
        from opmatrix.wheel import run_unpacked  # imports numpy and onnx, which an unverified folder does not need

        with tempfile.TemporaryDirectory(prefix="opmatrix-dist-") as folder:
            use = run_unpacked.WheelRun(
                paths=paths,
                name=package_name(dist, wheel),
                # `operators` were read in a child process, so that `Model.around` cannot be called.
                operators=[load_operator(paths, operator.name) for operator in operators],
                cells=chosen_cells(paths),
                torch=installed().torch,
                folder=Path(folder),
                variant=f"kernel/{BUILD}",
            )
            ran = run_unpacked.run_kernel(files, use)
    written = _replace(paths.kernel_folder, {Path(name): content for name, content in files.items()})
    write_list(paths.unverified_kernel_list if unverified else paths.kernel_list, written, root=paths.root)
    digests = digests_by_path(written, paths.root)
    record = "".join(f"{digest}  {path}\n" for path, digest in digests.items())
    write_text(paths.unverified_kernel_record if unverified else paths.kernel_record, record)
    print(ran)
    print(f"{paths.kernel_folder.relative_to(paths.root)}: {many(len(written), 'file')} for kernels.get_local_kernel")


def _read_wheel(paths: Paths, *, unverified: bool) -> dict[str, bytes]:
    """Return the files of the wheel that dist has built. Raises DistError if there is none."""
    command = "doit dist --unverified" if unverified else "doit dist"
    try:
        path = Path(read_list(paths.unverified_list if unverified else paths.wheel_list, root=paths.root)[0])
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (FileNotFoundError, IndexError) as error:
        raise DistError(missing("the wheel", run=command)) from error
    except zipfile.BadZipFile as error:
        raise DistError(missing(path, run=command, problem=f"is no wheel ({error})")) from error


def _replace(folder: Path, files: dict[Path, bytes]) -> list[Path]:
    """Write `files` in place of a folder, whole or not at all; return their paths."""
    fresh, old = (folder.with_name(f".{folder.name}.{kind}") for kind in ("new", "old"))
    for rest in (fresh, old):
        shutil.rmtree(rest, ignore_errors=True)
    for path, content in files.items():
        (fresh / path).parent.mkdir(parents=True, exist_ok=True)
        (fresh / path).write_bytes(content)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return [folder / path for path in files]
