// What checks and parallel_for do. Every library has it once, so that no kernel compiles it.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "kernel_error.h"
#include "kernel_threads.h"
#include "opmatrix/check.h"
#include "opmatrix/parallel.h"

namespace opmatrix {

namespace {

// Set on the thread that calls a kernel, and there alone: who finds null works serially.
constinit thread_local Threads* lent = nullptr;

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

UseThreads::UseThreads(Threads* threads) noexcept : before_(lent) {
  lent = threads;
}

UseThreads::~UseThreads() {
  lent = before_;
}

void detail::parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, Range call, const void* f) {
  if (begin >= end) return;
  Threads* const threads = lent;
  if (threads == nullptr || end - begin <= grain) {
    const UseThreads serial(nullptr);
    call(f, begin, end);
    return;
  }
  Region region{call, f};
  threads->run(begin, end, grain, work, &region);
  if (region.error) std::rethrow_exception(region.error);
}

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
