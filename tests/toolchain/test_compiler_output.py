"""What is shown of the output of compilers and linkers: the first error, in their lines and colours.

test_compile.py and test_clang.py compile planted faults; here is what GCC 12 and clang 14 printed of such.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.basics.errors import Cause, without_colours
from opmatrix.project.paths import Paths
from opmatrix.toolchain.compiler_output import full, shortened

KERNEL = """#include <vector>
float cut(float);
template <typename T>
void my_op(const T* x, T* y) {
  int q = x[0] | 1;
  y[0] = cut(x[0]);
}
"""
RED = "\x1b[01;31m\x1b[K"
END = "\x1b[m\x1b[K"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "my project")
    paths.kernel("my_op").parent.mkdir(parents=True)
    paths.kernel("my_op").write_text(KERNEL)
    return paths


def failed(output: str, lines: str) -> str:
    return f"\x1b[31mFAILED: \x1b[0m[code=1] {output} \ng++ -std=c++20 -c {output}\n{lines}\n"


def result(paths: Paths, *blocks: str) -> tuple[str, Cause | None]:
    text = "".join(blocks).replace("KERNEL", str(paths.kernel("my_op")))
    text = text.replace("GENERATED", str(paths.generated("my_op") / "kernel.cc"))
    return shortened(f"{text}ninja: build stopped: subcommand failed.\n", paths, "my_op")


def shown(paths: Paths, *blocks: str) -> list[str]:
    return without_colours(result(paths, *blocks)[0]).splitlines()


def of_gcc(dtype: str, line: int) -> str:
    return "\n".join(
        [
            "In file included from GENERATED:4:",
            f"KERNEL: In instantiation of 'void my_op(const T*, T*) [with T = {dtype}; int64_t = long int]':",
            f"GENERATED:{line}:13:   required from here",
            f"KERNEL:5:16: {RED}error: {END}invalid operands of types 'const {dtype}' and 'int' to binary 'operator|'",
            "    5 |   int q = x[0] | 1;",
            f"      |           {RED}~~~~~^~~{END}",
        ]
    )


def of_clang(dtype: str, line: int) -> str:
    return "\n".join(
        [
            "In file included from GENERATED:4:",
            f"KERNEL:5:16: error: invalid operands to binary expression ('const {dtype}' and 'int')",
            "  int q = x[0] | 1;",
            "          ~~~~ ^ ~",
            f"GENERATED:{line}:3: note: in instantiation of function template specialization "
            f"'my_op<{dtype}>' requested here",
            "  my_op(x, y);",
            "  ^",
        ]
    )


def test_an_error_in_a_template_is_shown_where_the_kernel_has_it(paths: Paths) -> None:
    gcc = failed("kernel.o", f"{of_gcc('float', 3)}\ncompilation terminated due to -fmax-errors=1.")
    assert shown(paths, gcc) == [
        "native/my_op/kernel.h:5:16: error: invalid operands of types 'const float' and 'int' to binary 'operator|'",
        "    5 |   int q = x[0] | 1;",
        "      |           ~~~~~^~~",
    ]
    assert f"{RED}~~~~~^~~{END}" in result(paths, gcc)[0]
    end = "fatal error: too many errors emitted, stopping now [-ferror-limit=]\n2 errors generated."
    assert shown(paths, failed("kernel.o", f"{of_clang('float', 3)}\n{end}")) == [
        "native/my_op/kernel.h:5:16: error: invalid operands to binary expression ('const float' and 'int')",
        "  int q = x[0] | 1;",
        "          ~~~~ ^ ~",
    ]


def test_two_bindings_with_one_error_are_one_cause_and_the_users_file_comes_first(paths: Paths) -> None:
    block = of_gcc("float", 3)
    both = shown(paths, failed("ort.o", block), failed("torch.o", block))
    assert both == shown(paths, failed("ort.o", block))
    assert both == shown(paths, failed("torch.o", block), failed("ort.o", block)), "whichever ends first"
    generated = failed("kernel.o", "GENERATED:10:8: error: no matching function for call to 'my_op(const float*&)'")
    assert both == shown(paths, generated, failed("torch.o", block))


def test_an_error_in_the_standard_library_begins_with_the_line_of_the_kernel(paths: Paths) -> None:
    lines = [
        "In file included from KERNEL:1,",
        "                 from GENERATED:4:",
        "/usr/include/c++/12/bits/predefined_ops.h: In instantiation of 'bool f() [with It = int]':",
        "/usr/include/c++/12/bits/stl_algo.h:4861:18:   required from 'void std::sort(_It, _It) [with _It = P]'",
        "KERNEL:6:10:   required from 'void my_op(const T*, T*) [with T = float]'",
        "GENERATED:18:13:   required from here",
        "/usr/include/c++/12/bits/predefined_ops.h:45:23: error: no match for 'operator<' (types 'P' and 'P')",
        "   45 |       { return *__it1 < *__it2; }",
        "      |                ~~~~~~~^~~~~~~~",
        "In file included from /usr/include/c++/12/bits/stl_algobase.h:67:",
        "/usr/include/c++/12/bits/stl_iterator.h:1202:5: note: candidate: 'bool operator<(const P&, const P&)'",
        " 1202 |     operator<(const P&, const P&)",
        "      |     ^~~~~~~~",
    ]
    assert shown(paths, failed("kernel.o", "\n".join(lines))) == [
        "native/my_op/kernel.h:6:10:   required from 'void my_op(const T*, T*) [with T = float]'",
        "    6 |   y[0] = cut(x[0]);",
        "      |          ^",
        *lines[6:9],
    ]
    found = result(paths, failed("kernel.o", "\n".join(lines)))[1]
    assert found == Cause(file="native/my_op/kernel.h", line=6), "annotations are in the kernel"
    assert result(paths, failed("kernel.o", of_gcc("float", 3)))[1] is None


def test_an_error_in_generated_code_points_to_the_declaration(paths: Paths) -> None:
    lines = [
        "GENERATED:10:8: error: no matching function for call to 'my_op(const float*&)'",
        "   10 |   my_op(x);",
        "      |   ~~~~~^~~",
        "KERNEL:4:6: note: candidate: 'template<class T> void my_op(const T*, T*)'",
        "    4 | void my_op(const T* x, T* y) {",
        "      |      ^~~~~",
        "GENERATED:10:8: note:   candidate expects 2 arguments, 1 provided",
        "   10 |   my_op(x);",
        "      |   ~~~~~^~~",
    ]
    found = shown(paths, failed("kernel.o", "\n".join(lines)))
    assert found[0].startswith("build/generated/my_op/kernel.cc:10:8: error: no matching function")
    assert found[3].startswith("native/my_op/kernel.h:4:6: note: candidate:")
    assert found[6].endswith("candidate expects 2 arguments, 1 provided")
    assert found[7:] == [
        "kernel.cc is generated: my_op() in native/my_op/ must take the inputs, attributes and outputs of "
        "ops/my_op/spec.py, in this order",
    ]


GOLD = "kernel.o:kernel.cc:function void my_op<{0}>({0} const*, {0}*): error: undefined reference to 'cut(float)'"
BFD = "/usr/bin/ld: kernel.cc:(.text._Z5my_op+0x1a): undefined reference to `cut(float)'"
LLD = "ld.lld: error: undefined symbol: cut(float)\n>>> referenced by kernel.cc\n>>>     kernel.o:(void my_op<float>)"


@pytest.mark.parametrize("lines", [f"{GOLD.format('float')}\n{GOLD.format('double')}", f"{BFD}\n{BFD}", LLD])
def test_an_undefined_symbol_is_shown_once_where_the_kernel_uses_it(paths: Paths, lines: str) -> None:
    block = failed("libmy_op_ort.so", f"{lines}\ncollect2: error: ld returned 1 exit status")
    assert shown(paths, block) == [
        "native/my_op/kernel.h:6:10: error: undefined reference to 'cut(float)'",
        "    6 |   y[0] = cut(x[0]);",
        "      |          ^",
        "define it in native/my_op/, inline or as a template: no other library is linked",
    ]


def test_several_undefined_symbols_and_one_that_this_torch_lacks(paths: Paths) -> None:
    found = shown(paths, failed("libmy_op_torch.so", GOLD.replace("cut(float)", "at::gone()").format("float")))
    assert found[-1] == "the torch that the library is compiled for does not have it"
    lines = [f"ld.lld: error: undefined symbol: f{n}(int)" for n in range(5)]
    found = shown(paths, failed("libmy_op_ort.so", "\n".join(lines)))
    assert found[:4] == [
        *(f"error: undefined reference to 'f{n}(int)'" for n in range(3)),
        "not shown: 2 undefined references",
    ]


def test_other_lines_are_shown_cut(paths: Paths) -> None:
    killed = "c++: fatal error: Killed signal terminated program cc1plus"
    assert shown(paths, failed("kernel.o", f"{killed}\ncompilation terminated.")) == [killed]
    assert shown(paths, failed("kernel.o", "no such thing")) == ["no such thing"]
    assert shortened("ninja: error: loading 'build.ninja'", paths, "my_op")[0] == "ninja: error: loading 'build.ninja'"
    found = shown(paths, failed("kernel.o", f"KERNEL:5:16: error: no match for {'std::vector<' * 100}"))
    assert len(found) == 1 and len(found[0]) < 250 and found[0].endswith(" ...")


def test_the_full_output_has_no_commands_of_ninja_and_no_colours(paths: Paths) -> None:
    block = failed("kernel.o", of_gcc("float", 3))
    assert full(f"{block}ninja: build stopped: subcommand failed.\n") == without_colours(of_gcc("float", 3))
