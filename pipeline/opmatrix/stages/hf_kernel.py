"""Write the operators of the wheel as a folder that the Hugging Face package `kernels` loads, and run it before.

The files are those of the wheel that the stage dist has built, so that both contain what was verified.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from opmatrix.declaration.load import Operator, load_operator
from opmatrix.errors import DistError, many, missing
from opmatrix.files import digests_by_path, read_list, write_list, write_text
from opmatrix.project.paths import Paths
from opmatrix.project.settings import chosen_cells, installed
from opmatrix.wheel import kernel_folder
from opmatrix.wheel.settings import Dist


def run(layout: Paths, dist: Dist, operators: Sequence[Operator], *, unverified: bool = False) -> None:
    """Write build/hf-kernel/, and the list of its files. Raises DistError, and then leaves the folder as it was.

    With `unverified`, the wheel is the one that dist --unverified has built, and the folder is not run.
    """
    wheel = _read_wheel(layout, unverified=unverified)
    files = kernel_folder.files(dist, [operator.spec for operator in operators], wheel)
    ran = "not verified: neither compared with what was verified nor run"
    if not unverified:
        from opmatrix.wheel import run_unpacked  # imports numpy and onnx, which an unverified folder does not need

        with tempfile.TemporaryDirectory(prefix="opmatrix-dist-") as folder:
            use = run_unpacked.WheelRun(
                paths=layout,
                name=kernel_folder.package_name(dist, wheel),
                # `operators` were read in a child process, so that `Model.around` cannot be called.
                operators=[load_operator(layout, operator.name) for operator in operators],
                cells=chosen_cells(layout),
                torch=installed().torch,
                folder=Path(folder),
                variant=f"kernel/{kernel_folder.BUILD}",
            )
            ran = run_unpacked.run_kernel(files, use)
    written = _replace(layout.kernel_folder, {Path(name): content for name, content in files.items()})
    write_list(layout.unverified_kernel_list if unverified else layout.kernel_list, written, root=layout.root)
    digests = digests_by_path(written, layout.root)
    record = "".join(f"{digest}  {path}\n" for path, digest in digests.items())
    write_text(layout.unverified_kernel_record if unverified else layout.kernel_record, record)
    print(ran)
    print(f"{layout.kernel_folder.relative_to(layout.root)}: {many(len(written), 'file')} for kernels.get_local_kernel")


def _read_wheel(layout: Paths, *, unverified: bool) -> dict[str, bytes]:
    """Return the files of the wheel that dist has built. Raises DistError if there is none."""
    command = "doit dist --unverified" if unverified else "doit dist"
    try:
        path = Path(read_list(layout.unverified_list if unverified else layout.wheel_list, root=layout.root)[0])
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
