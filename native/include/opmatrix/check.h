// Checks whose text reaches the user: as a Python exception from torch, as the status of a run from ONNX Runtime.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>

#include "opmatrix/tensor_view.h"

namespace opmatrix {

/// One piece of a message.
class Part {
 public:
  Part(const char* value) : kind_(Kind::text), text_(value) {}
  Part(int value) : Part(static_cast<std::int64_t>(value)) {}
  Part(std::int64_t value) : kind_(Kind::whole), whole_(value) {}
  Part(float value) : kind_(Kind::single), real_(static_cast<double>(value)) {}
  Part(double value) : kind_(Kind::real), real_(value) {}
  Part(Sizes value) : kind_(Kind::sizes), sizes_(value) {}

  /// Writes the piece to `to`, as much of it as `room` takes, with a NUL. Returns the characters it would like.
  int print(char* to, std::size_t room) const noexcept {
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

 private:
  enum class Kind { text, whole, single, real, sizes };

  /// The fewest digits that read back as the same number: 0.1, not 0.100000001.
  int print_shortest(char* to, std::size_t room) const noexcept {
    char digits[32];
    for (int precision = 1; precision <= 17; ++precision) {
      std::snprintf(digits, sizeof digits, "%.*g", precision, real_);
      const double read = std::strtod(digits, nullptr);
      if (kind_ == Kind::single ? static_cast<float>(read) == static_cast<float>(real_) : read == real_) break;
    }
    return std::snprintf(to, room, "%s", digits);
  }

  /// As Python prints a shape: (), (5,), (2, 3).
  int print_sizes(char* to, std::size_t room) const noexcept {
    char text[512] = "(";
    int length = 1;
    for (std::int64_t i = 0; i < sizes_.rank && length < 480; ++i) {
      length += std::snprintf(text + length, sizeof text - static_cast<std::size_t>(length), i == 0 ? "%lld" : ", %lld",
                              static_cast<long long>(sizes_[i]));
    }
    return std::snprintf(to, room, sizes_.rank == 1 ? "%s,)" : "%s)", text);
  }

  Kind kind_;
  union {
    const char* text_;
    std::int64_t whole_;
    double real_;
    Sizes sizes_;
  };
};

/// What a check throws. The text is the whole message: no file, no line, so that an edited comment changes no byte of
/// a library. A buffer of fixed size, because <string> would add a third to the time that a kernel takes to compile.
class Error : public std::exception {
 public:
  Error(std::initializer_list<Part> parts) noexcept {
    std::size_t size = 0;
    for (const Part& part : parts) {
      const int length = part.print(text_ + size, sizeof text_ - size);
      if (length > 0) size += static_cast<std::size_t>(length);
      if (size >= sizeof text_) return;  // cut, and ended by print
    }
  }

  const char* what() const noexcept override { return text_; }

 private:
  char text_[1024] = "";
};

}  // namespace opmatrix

/// Throws Error with the given parts, put together, unless `condition` holds.
///
///     KERNEL_CHECK(groups > 0, "group_norm: num_groups must be greater than 0, got ", groups);
#define KERNEL_CHECK(condition, ...)                          \
  do {                                                        \
    if (!(condition)) throw ::opmatrix::Error({__VA_ARGS__}); \
  } while (false)
