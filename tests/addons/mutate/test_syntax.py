"""How kernels are read: macros, names of functions, the code around a change."""

from __future__ import annotations

import sys

import pytest

from opmatrix.addons.mutate.cpp import context, function_name, parse, unparsed_lines, walk
from opmatrix.basics.errors import ToolchainError


def test_without_tree_sitter_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter_cpp", None)
    with pytest.raises(ToolchainError) as error:
        parse("int a;")
    assert str(error.value) == (
        "doit mutate: tree_sitter_cpp is not installed, which reads the kernels as syntax trees. "
        "Run: pip install 'opmatrix[mutate]'"
    )


class TestWithTreeSitter:
    @pytest.fixture(autouse=True)
    def needs_tree_sitter(self) -> None:
        pytest.importorskip("tree_sitter_cpp", reason="needs the extra mutate")

    @pytest.mark.parametrize(
        "source",
        [
            "template <typename T>\nOPMATRIX_EACH_CPU double f(const T* x) { return x[0]; }",
            "FORCE_INLINE static double f(double x) { return x; }",
            "template <typename T>\n[[gnu::cold]] void f(T* y) { y[0] = 0; }",
            '__attribute__((target_clones("avx2", "default"))) void f(float* y) { y[0] = 0; }',
            "#define EACH_CPU __attribute__((cold))\nvoid f() { const auto g = [&](int i) { return i; }; g(A_MACRO); }",
        ],
    )
    def test_macros_attributes_templates_and_lambdas_are_read(self, source: str) -> None:
        code = parse(source)
        assert unparsed_lines(code) == []
        assert code.data.decode() == source
        assert any(function_name(node) == "f" for node in walk(code.root))

    def test_lines_that_are_no_cpp_are_named_and_not_mutated(self) -> None:
        code = parse("int f(int a) { return a + 1; }\n\nint g(int a) { return a + ; }\n")
        assert unparsed_lines(code) == [3]
        assert {function_name(n) for n in walk(code.root) if n.type == "number_literal"} == {"f"}

    def test_a_function_is_named_with_its_class_and_owns_its_lambdas(self) -> None:
        source = (
            "class Reader { int operator[](int i) const { return i; } };\nvoid f() { g([](int a) { return a * 2; }); }"
        )
        names = {function_name(node) for node in walk(parse(source).root) if node.type == "return_statement"}
        assert names == {"Reader::operator[]", "f"}

    @pytest.mark.parametrize(
        ("source", "place", "expected"),
        [
            ("void f() {\n  y = a +  // here\n      b;\n}", "b;", "y = a + «b»;"),
            ("void f() { for (int i = 0; i < n; ++i) { g(i); } }", "n;", "for (int i = 0; i < «n»; ++i) { ... }"),
            ("void f() { for (int i = 0; i < n; ++i) g(i); }", "0;", "for (int i = «0»; i < n; ++i) { ... }"),
            ("void f() { for (int i = 0; i < n; ++i) g(i); }", "i);", "g(«i»);"),
            ("void f() { run(0, n, [&](int i) { g(i); }); }", "n, [", "run(0, «n», [&](int i) { ... });"),
            ("void f() { if (a) { g(); } }", "a)", "if («a») { ... }"),
        ],
    )
    def test_the_context_is_one_statement_on_one_line(self, source: str, place: str, expected: str) -> None:
        start = source.index(place)
        assert context(parse(source), start, start + 1) == expected
