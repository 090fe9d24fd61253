// What checks, parallel_for and levels of the processor do. Every library has it once, so that no kernel compiles it.

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "cpu_level.h"
#include "kernel_error.h"
#include "kernel_threads.h"
#include "opmatrix/check.h"
#include "opmatrix/parallel.h"

namespace opmatrix {

namespace {

// Set on the thread that calls a kernel, and there alone: who finds null works serially.
constinit thread_local Threads* lent_here = nullptr;

/// One call of parallel_for.
struct Region {
  detail::Range call;
  const void* f;
  std::atomic<bool> failed = false;
  std::exception_ptr error = nullptr;  // written by the one that set `failed`, read after the threads have joined
};

void work(void* context, std::int64_t begin, std::int64_t end) noexcept {
  auto& region = *static_cast<Region*>(context);
  const UseThreads serial(nullptr);
  try {
    if (!region.failed.load(std::memory_order_relaxed)) region.call(region.f, begin, end);
  } catch (...) {
    if (!region.failed.exchange(true, std::memory_order_relaxed)) region.error = std::current_exception();
  }
}

}  // namespace

Threads** UseThreads::lent() noexcept {
  return &lent_here;
}

void detail::parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, Range call, const void* f) {
  if (begin >= end) return;
  Threads* const threads = lent_here;
  if (threads == nullptr) return call(f, begin, end);
  if (end - begin <= grain) {
    const UseThreads serial(nullptr);
    return call(f, begin, end);
  }
  Region region{call, f};
  threads->run(begin, end, grain, work, &region);
  if (region.error) std::rethrow_exception(region.error);
}

namespace {

/// The highest level of the processor, 1 for one without x86-64-v2. The two macros also test that the system saves the
/// registers; __builtin_cpu_supports knows no levels before clang 18, and no F16C, LZCNT and MOVBE in clang 14.
int level_of_processor() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, features = 0, extended = 0, d = 0;
  __get_cpuid(1, &a, &b, &features, &d);
  __get_cpuid(0x80000001, &a, &b, &extended, &d);
  constexpr unsigned kV2 = 1U << 13, kV3 = 1U << 22 | 1U << 29;  // CMPXCHG16B; MOVBE, F16C
  constexpr unsigned kLahf = 1U << 0, kLzcnt = 1U << 5;
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("popcnt") || (features & kV2) == 0 ||
      (extended & kLahf) == 0) {
    return 1;
  }
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") ||
      !__builtin_cpu_supports("fma") || (features & kV3) != kV3 || (extended & kLzcnt) == 0) {
    return 2;
  }
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
  return wide ? 4 : 3;
#else
  return 1;
#endif
}

/// Returns the level that OPMATRIX_CPU_LEVEL allows, 4 without it.
int allowed_level() {
  const char* const text = std::getenv("OPMATRIX_CPU_LEVEL");
  if (text == nullptr || text[0] == 0) return 4;
  KERNEL_CHECK(text[0] >= '2' && text[0] <= '4' && text[1] == 0, "OPMATRIX_CPU_LEVEL must be 2, 3 or 4, got ", text,
               "; unset it to use all instructions of the processor");
  return text[0] - '0';
}

}  // namespace

namespace detail {

constinit int cpu_level = 0;

int find_cpu_level() {
  const int has = level_of_processor(), allowed = allowed_level();
  KERNEL_CHECK(has >= 2, "opmatrix: the kernel needs a processor with the instructions of x86-64-v2, as SSE4.2");
  const int level = has < allowed ? has : allowed;
  __atomic_store_n(&cpu_level, level, __ATOMIC_RELAXED);
  return level;
}

}  // namespace detail

void fail(std::initializer_list<Part> parts) {
  throw Error(parts);
}

Error::Error(std::initializer_list<Part> parts) noexcept {
  std::size_t size = 0;
  for (const Part& part : parts) {
    const int length = part.print(text_ + size, sizeof text_ - size);
    if (length > 0) size += static_cast<std::size_t>(length);
    if (size >= sizeof text_) return;  // cut, and ended by print
  }
}

int Part::print(char* to, std::size_t room) const noexcept {
  switch (kind_) {
    case Kind::text:
      return std::snprintf(to, room, "%s", text_);
    case Kind::whole:
      return std::snprintf(to, room, "%lld", static_cast<long long>(whole_));
    case Kind::single:
    case Kind::real:
      return print_shortest(to, room);
    case Kind::sizes:
      return print_sizes(to, room);
  }
  return 0;
}

// The fewest digits that read back as the same number: 0.1, not 0.100000001.
int Part::print_shortest(char* to, std::size_t room) const noexcept {
  char digits[32];
  for (int precision = 1; precision <= 17; ++precision) {
    std::snprintf(digits, sizeof digits, "%.*g", precision, real_);
    const double read = std::strtod(digits, nullptr);
    if (kind_ == Kind::single ? static_cast<float>(read) == static_cast<float>(real_) : read == real_) break;
  }
  return std::snprintf(to, room, "%s", digits);
}

// As Python prints a shape: (), (5,), (2, 3).
int Part::print_sizes(char* to, std::size_t room) const noexcept {
  char text[512] = "(";
  int length = 1;
  for (std::int64_t i = 0; i < sizes_.rank && length < 480; ++i) {
    length += std::snprintf(text + length, sizeof text - static_cast<std::size_t>(length), i == 0 ? "%lld" : ", %lld",
                            static_cast<long long>(sizes_[i]));
  }
  return std::snprintf(to, room, sizes_.rank == 1 ? "%s,)" : "%s)", text);
}

}  // namespace opmatrix

/// Sets the level of the kernels in this library, 0: as they choose it themselves, and returns the one in use. Returns
/// 0 and changes nothing where the processor does not have it. Not while a kernel runs: the tests of each level call
/// it.
extern "C" [[gnu::visibility("default")]] int opmatrix_cpu_level(int level) {
  if (level != 0 && (level < 2 || level > opmatrix::level_of_processor())) return 0;
  __atomic_store_n(&opmatrix::detail::cpu_level, level, __ATOMIC_RELAXED);
  try {
    return opmatrix::cpu_level();
  } catch (const opmatrix::Error&) {
    return 0;
  }
}
