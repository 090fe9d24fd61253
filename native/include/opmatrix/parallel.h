// One way for kernels to use the threads of whatever framework runs them.
#pragma once

#include <cstdint>
#include <exception>

namespace opmatrix {

/// The threads of a framework, lent for one call of a kernel.
class Threads {
 public:
  using Work = void (*)(void* context, std::int64_t begin, std::int64_t end) noexcept;

  /// Covers [begin, end) with calls of `work`, each of about `grain` indices or more, and returns when all are done.
  virtual void run(std::int64_t begin, std::int64_t end, std::int64_t grain, Work work, void* context) = 0;

 protected:
  ~Threads() = default;
};

namespace detail {
// Set on the thread that calls a kernel, and there alone: who finds null works serially.
constinit inline thread_local Threads* threads = nullptr;
}  // namespace detail

/// While it lives, `parallel_for` on this thread uses `threads`; null makes it serial.
class UseThreads {
 public:
  explicit UseThreads(Threads* threads) : before_(detail::threads) { detail::threads = threads; }
  ~UseThreads() { detail::threads = before_; }
  UseThreads(const UseThreads&) = delete;
  UseThreads& operator=(const UseThreads&) = delete;

 private:
  Threads* before_;
};

/// Covers [begin, end) with calls `f(from, to)`, on several threads where the framework has them.
///
/// Ranges are disjoint and not empty, and no range is split that has `grain` indices or fewer. How often f is called,
/// and with which bounds, is not promised: f must compute an index in the same way whatever range it stands in, so that
/// results do not depend on the number of threads. The first exception that f throws reaches the caller, and work that
/// has not begun is dropped. A parallel_for within f is serial.
template <typename F>
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, const F& f) {
  if (begin >= end) return;
  struct Region {
    const F& f;
    // Read and set with the compiler's own atomics: <atomic> would double the time that a kernel takes to parse.
    bool failed = false;
    std::exception_ptr error = nullptr;  // written by the one that set `failed`, read after the threads have joined
  } region{f};
  const auto work = [](void* context, std::int64_t from, std::int64_t to) noexcept {
    auto& shared = *static_cast<Region*>(context);
    const UseThreads serial(nullptr);
    try {
      if (!__atomic_load_n(&shared.failed, __ATOMIC_RELAXED)) shared.f(from, to);
    } catch (...) {
      if (!__atomic_exchange_n(&shared.failed, true, __ATOMIC_RELAXED)) shared.error = std::current_exception();
    }
  };
  Threads* const threads = detail::threads;
  if (threads == nullptr || end - begin <= grain) {
    work(&region, begin, end);  // not f itself, which would be compiled in a second time
  } else {
    threads->run(begin, end, grain, work, &region);
  }
  if (region.error) std::rethrow_exception(region.error);
}

}  // namespace opmatrix
