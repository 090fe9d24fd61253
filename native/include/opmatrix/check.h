// Checks of a kernel. The user sees the message as a Python exception from torch or as a status from ONNX Runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "opmatrix/tensor_view.h"

namespace opmatrix {

/// One piece of a message: KERNEL_CHECK makes one of each argument after its condition.
class Part {
 public:
  /// Text, an integer, a number with the fewest digits that read back as the same number, or sizes as Python prints a
  /// shape.
  constexpr Part(const char* value) : kind_(Kind::text), text_(value) {}
  constexpr Part(int value) : kind_(Kind::whole), whole_(value) {}
  constexpr Part(std::int64_t value) : kind_(Kind::whole), whole_(value) {}
  constexpr Part(float value) : kind_(Kind::single), real_(static_cast<double>(value)) {}
  constexpr Part(double value) : kind_(Kind::real), real_(value) {}
  constexpr Part(Sizes value) : kind_(Kind::sizes), sizes_(value) {}

  /// A number of half.h.
  template <typename T, int = T::kBits>
  constexpr Part(T value) : Part(static_cast<float>(value)) {}

  /// Writes the piece to `to`, cut to `room` characters with the NUL. Returns the length of the whole piece.
  int print(char* to, std::size_t room) const noexcept;

 private:
  enum class Kind { text, whole, single, real, sizes };

  int print_shortest(char* to, std::size_t room) const noexcept;
  int print_sizes(char* to, std::size_t room) const noexcept;

  Kind kind_;
  union {
    const char* text_;
    std::int64_t whole_;
    double real_;
    Sizes sizes_;
  };
};

/// Throws an `Error` (native/binding/kernel_error.h) whose message is the parts, joined. Compiled once, not with each
/// kernel.
[[noreturn, gnu::cold]] void fail(std::initializer_list<Part> parts);

}  // namespace opmatrix

/// Throws unless `condition` is true; the message of the exception is the parts, joined.
///
///     KERNEL_CHECK(groups > 0, "group_norm: num_groups must be greater than 0, got ", groups);
#define KERNEL_CHECK(condition, ...)                   \
  do {                                                 \
    if (!(condition)) ::opmatrix::fail({__VA_ARGS__}); \
  } while (false)
