"""The seed's first program: build both libraries. Arguments: the folder with the sources, ONNX Runtime's headers."""

import subprocess
import sys
from pathlib import Path

from torch.utils import cpp_extension

folder, headers = map(Path, sys.argv[1:])
cpp_extension.load(
    "peer",
    [str(folder / "group_norm_torch.cpp")],
    build_directory=str(folder),
    is_python_module=False,
    extra_cflags=["-O2"],
    verbose=True,
)
command = ["g++", "-std=c++17", "-O2", "-fPIC", "-shared", "-I", str(headers), "group_norm_ort.cc", "-o", "ort.so"]
subprocess.run(command, cwd=folder, check=True)
