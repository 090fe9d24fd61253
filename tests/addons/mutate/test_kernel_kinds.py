"""How kernels are read, and each operator of mutation: all mutants of its kind in a small kernel, in order."""

from __future__ import annotations

import pytest

pytest.importorskip("tree_sitter_cpp", reason="needs the extra mutate")

from opmatrix.addons.mutate.cpp import context, function_name, parse, unparsed_lines, walk
from opmatrix.addons.mutate.operator_mutants import KINDS, kernel_mutants

CLAMP = "template <typename T> void f(TensorView<const T> x, float limit, bool both, TensorView<T> y) { %s }"
LOOP = "for (std::int64_t i = 0; i < x.numel(); ++i) %s"
VECTORS = """
double f(const float* x, std::int64_t n) {
  double sum = 0;
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) sum += eight(x + i);
  for (; i < n; ++i) sum += x[i];
  return sum;
}
"""
THREADS = """
void f(TensorView<const float> x, TensorView<float> y) {
  const auto work = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) y.data[i] = x.data[i];
  };
  constexpr std::int64_t kGrain = 4096;
  parallel_for(0, x.numel(), 1 + kGrain / 2, work);
}
"""


def changes(source: str, kind: str, **defaults: str) -> list[str]:
    """Return ``before -> after`` of each mutant of a kind, in the order of the file."""
    assert unparsed_lines(parse(source)) == []
    found = [m for m in kernel_mutants("native/f/kernel.h", source, defaults) if m.kind == kind]
    assert all(m.applied(source) != source for m in found)
    return [f"{' '.join(m.before.split())} -> {' '.join(m.after.split())}" for m in found]


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        # At its limit, and turned around; a loop that is turned around never runs, which `condition` does.
        ("comparison", CLAMP % "if (x.rank > 1) g();", ["> -> <", "> -> >="]),
        ("comparison", CLAMP % "while (a != b) g();", ["!= -> =="]),
        ("comparison", CLAMP % (LOOP % "g(i);"), ["< -> <="]),
        # Where both are equal it does not matter which one is taken, nor which sign 0 has.
        ("comparison", CLAMP % "c = a < b ? a : b;", ["< -> >"]),
        ("comparison", CLAMP % "if (a > b) b = a;", ["> -> <"]),
        ("comparison", CLAMP % "c = a < 0 ? -a : a;", ["< -> >"]),
        # No value meets a limit of the arithmetic exactly.
        ("comparison", "void f(double a) { constexpr double kLarge = 1e300; g(a < kLarge); g(a > -kLarge); "
                       "g(a >= 1e-280F); }",
         ["< -> >", "> -> <", ">= -> <="]),
        ("comparison", CLAMP % "g(limit < 0.5, limit >= 2);", ["< -> <=", "< -> >", ">= -> <=", ">= -> >"]),
        # The tail does what a loop over vectors leaves.
        ("comparison", VECTORS, ["< -> <="]),
        ("arithmetic", CLAMP % "y = a + b * c % d;", ["+ -> -", "* -> /", "% -> *"]),
        ("arithmetic", CLAMP % "sum += a; sum *= b; bits |= 1 << k;",
         ["+= -> -=", "+= -> =", "*= -> /=", "|= -> =", "<< -> >>"]),
        ("arithmetic", THREADS, []),
        ("arithmetic", CLAMP % "__builtin_prefetch(x.data + i + 8); g(a + b);", ["+ -> -"]),
        ("condition", CLAMP % "if (a && b) g();",
         ["a && b -> a", "a && b -> b", "a && b -> false", "a && b -> true", "&& -> ||"]),
        # Of a chain, each operand is left out once.
        ("condition", CLAMP % "ok = a || b || c;",
         ["a || b -> a", "a || b -> b", "a || b || c -> a || b", "|| -> &&", "|| -> &&"]),
        ("condition", CLAMP % "y = both ? a : b; while (more()) g();",
         ["both -> false", "both -> true", "more() -> false"]),
        ("condition", VECTORS, []),
        ("constant", CLAMP % "y = 0.5 * a + 3; keep = true; big = 1e300;",
         ["0.5 -> 0.0", "0.5 -> 1.0", "3 -> 2", "3 -> 4", "true -> false", "1e300 -> 0.0"]),
        ("constant", CLAMP % 'if (equal(mode, "sum")) fail("no sum"); y = 0x1p-3F; n = 0b11;',
         ['"sum" -> ""', "0x1p-3F -> 0.0F", "0x1p-3F -> 0.25F", "0b11 -> 2", "0b11 -> 4"]),
        # Indices, axes, bounds and the work of a thread are other kinds', or none.
        ("constant", CLAMP % "y.data[0] = x.size(1); for (int k = 0; k < 4; ++k) g(k);", []),
        ("constant", THREADS, ["0 -> 1"]),
        ("sign", CLAMP % "const T a = x.data[0]; if (!both) y.data[0] = -a;",
         ["x.data[0] -> -(x.data[0])", "!both -> both", "-a -> -(-a)", "-a -> a"]),
        ("sign", CLAMP % "const std::int64_t n = x.numel(); double sum = 0;", []),
        ("dropped", CLAMP % "g(); for (const auto& a : list) { if (a) continue; n += a; }",
         ["g(); -> ;", "for (const auto& a : list) { if (a) continue; n += a; } -> ;", "continue; -> ;",
          "n += a; -> ;"]),
        ("check", CLAMP % 'KERNEL_CHECK(limit > 0, "f: limit must be > 0, got ", limit + 1);', ["limit > 0 -> true"]),
        ("arithmetic", CLAMP % 'KERNEL_CHECK(limit > 0, "f: limit must be > 0, got ", limit + 1);', []),
        ("bound", CLAMP % (LOOP % "g(i);"), ["0 -> (0) + 1", "x.numel() -> (x.numel()) - 1", "++i -> i += 2"]),
        ("bound", VECTORS, ["n -> (n) + 1", "8 -> (8) + 1", "n -> (n) - 1", "++i -> i += 2"]),
        ("tail", VECTORS, ["i < n -> false"]),
        ("tail", CLAMP % (LOOP % "g(i);"), ["x.numel() -> (x.numel()) / 4 * 4"]),
        ("large", CLAMP % (LOOP % "g(i);"), ["x.numel() -> ((x.numel()) < 128 ? (x.numel()) : 128)"]),
        # A loop of known length is neither vectorised with a tail nor large.
        ("large", CLAMP % "for (int k = 0; k < kLanes; ++k) g(k);", []),
        ("thread_split", THREADS,
         ["first -> 0", "first -> first + (first != 0)", "x.numel() -> (x.numel()) - 1"]),
        ("index", CLAMP % "y.data[i] = x.data[n + i] + x.data[0]; *to++ = 1;",
         ["i -> (i) + 1", "n + i -> (n + i) - 1", "to++ -> to"]),
        ("further", CLAMP % "y.data[i] = x.data[i] + x.data[0]; g(x.data + i, n);",
         ["i -> (i) + 1", "0 -> 1", "x.data + i -> x.data + i + 1"]),
        ("ignored", CLAMP % "y.data[i] = x.data[i];", ["x.data[i] -> (decltype(x.data[i] + 0)){}"]),
        ("result", CLAMP % "y.data[i + 1] = 2 * limit; *to++ = 1; sum = 2; g(*to);",
         ["2 * limit -> x.data[i + 1]", "2 * limit -> {}", "1 -> {}"]),
        ("size", CLAMP % "n = x.size(0) * x.size(2) + list.size(1);", ["0 -> 1", "2 -> 1"]),
        ("size", CLAMP % "n = x.numel();", ["x -> y"]),
        ("swapped", CLAMP % "double a = 1, b = 2; std::int64_t n = 3; g(a, b, n); h({b, a});",
         ["a, b -> b, a", "b, a -> a, b"]),
        ("swapped", "inline double area(double w, double h, int n) { return w; } void f() { area(x(), y(), z()); }",
         ["x(), y() -> y(), x()"]),
        ("swapped", THREADS, []),
        # Sums and products have no order.
        ("swapped", "double add(double x, double y) { return 2 * x + y * 2; } void f(double a, double b) "
                    "{ add(a, b); }", []),
        ("swapped", "double sub(double x, double y) { return x - y; } void f(double a, double b) { sub(a, b); }",
         ["a, b -> b, a"]),
        ("swapped", "void f(int a, int b, int* c) { __builtin_add_overflow(a, b, c); h(a, b); }", ["a, b -> b, a"]),
        ("narrow", "double f(const double* x, std::int64_t n) { double sum = 0; const double a = 1; sum += x[0]; "
                   "return sum; }", ["double -> float", "double -> float"]),
        ("narrow", CLAMP % "y.data[0] = static_cast<double>(x.data[0]) * static_cast<double>(limit);",
         ["<double> -> <float>"]),
        ("narrow", "void f() { std::int64_t kept = 0, i = 0; for (; i < 3; i += 1) kept += 2; }",
         ["std::int64_t -> std::int16_t"]),
        ("state", "void f(double a) { double sum = 0; const double b = a * 2; const int n = 3; constexpr int k = 4; "
                  "const auto g = [&](int i) { return i; }; const auto& r = a; for (int i = 0; i < n; ++i) g(i); }",
         [" -> static", " -> static"]),
    ],
)  # fmt: skip
def test_the_mutants_of_a_kind(kind: str, source: str, expected: list[str]) -> None:
    assert changes(source, kind) == expected


def test_attributes_and_declared_shapes_of_a_kernel() -> None:
    """A constant takes the place of an attribute where it is read; sizes of one declared shape are not exchanged."""
    source = CLAMP % "const float limit_here = limit; y.data[0] = both ? limit : 0; KERNEL_CHECK(both, limit);"
    both = ["limit -> 2.0f", "both -> false"]
    assert changes(source, "attribute", limit="2.0f", both="false") == [*both, *both]
    assert changes(source, "attribute") == []
    assert changes("void g(int n) { const float limit = 1; h(limit); }", "attribute", limit="2.0f") == []
    shapes = {"x": "('N',)", "y": "('N',)"}
    found = kernel_mutants("native/f/kernel.h", CLAMP % "n = x.numel();", {}, shapes)
    assert [m for m in found if m.kind == "size"] == []


def test_each_kind_has_a_row_above() -> None:
    marks = test_the_mutants_of_a_kind.pytestmark  # type: ignore[attr-defined]  # set by the decorator
    assert {row[0] for row in marks[0].args[1]} | {"attribute"} == KINDS.keys()


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
def test_macros_attributes_templates_and_lambdas_are_read(source: str) -> None:
    code = parse(source)
    assert unparsed_lines(code) == []
    assert code.data.decode() == source
    assert any(function_name(node) == "f" for node in walk(code.root))


def test_lines_that_are_no_cpp_are_named_and_not_mutated() -> None:
    code = parse("int f(int a) { return a + 1; }\n\nint g(int a) { return a + ; }\n")
    assert unparsed_lines(code) == [3]
    assert {function_name(n) for n in walk(code.root) if n.type == "number_literal"} == {"f"}


def test_a_function_is_named_with_its_class_and_owns_its_lambdas() -> None:
    source = "class Reader { int operator[](int i) const { return i; } };\nvoid f() { g([](int a) { return a * 2; }); }"
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
def test_the_context_is_one_statement_on_one_line(source: str, place: str, expected: str) -> None:
    start = source.index(place)
    assert context(parse(source), start, start + 1) == expected
