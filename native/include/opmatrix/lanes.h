// Arithmetic on four numbers at a time. It is written out because a compiler must not reorder a floating-point sum:
// without -ffast-math, which would break NaN, a plain loop is one long chain of additions.
#pragma once

namespace opmatrix {

/// Four T side by side: one AVX register or two of SSE2, as the function that uses it is compiled. Element-wise + - *.
template <typename T>
using Lanes [[gnu::vector_size(4 * sizeof(T))]] = T;

/// The number of elements of Lanes.
inline constexpr int kLanes = 4;

}  // namespace opmatrix

/// Compiles a function twice, for every x86-64 and for AVX2 with FMA; the loader chooses, so that one library runs on
/// all machines. A compiler that does not support the name (clang before 17) compiles it once.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#define OPMATRIX_EACH_CPU __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define OPMATRIX_EACH_CPU
#endif
