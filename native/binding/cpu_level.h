// The level of x86-64 whose instructions a kernel uses, where the library has the kernel for several levels
// (`OpSpec.cpu_levels`): 2, 3 or 4, for x86-64-v2, -v3 and -v4 of the System V ABI, x86-64 psABI, section 3.1.1.
#pragma once

namespace opmatrix {

namespace detail {
extern int cpu_level;  // 0 until the first call of a kernel
int find_cpu_level();
}  // namespace detail

/// The highest level that the processor has, or a lower one that OPMATRIX_CPU_LEVEL or opmatrix_cpu_level() asks for.
///
/// Throws for a processor without x86-64-v2, and for another value of the variable than 2, 3 and 4.
inline int cpu_level() {
  const int known = __atomic_load_n(&detail::cpu_level, __ATOMIC_RELAXED);
  return known != 0 ? known : detail::find_cpu_level();
}

}  // namespace opmatrix
