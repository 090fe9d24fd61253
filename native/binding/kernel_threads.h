// How a binding lends its framework's threads to `parallel_for`.
#pragma once

#include <cstdint>

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

/// While it lives, `parallel_for` on this thread uses `threads`; null makes it serial.
class UseThreads {
 public:
  explicit UseThreads(Threads* threads) noexcept : lent_(lent()), before_(*lent_) { *lent_ = threads; }
  ~UseThreads() { *lent_ = before_; }
  UseThreads(const UseThreads&) = delete;
  UseThreads& operator=(const UseThreads&) = delete;

  /// What is lent to this thread: found once, because each access from a library is a call.
  static Threads** lent() noexcept;

 private:
  Threads** lent_;
  Threads* before_;
};

}  // namespace opmatrix
