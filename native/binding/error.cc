// How the text of a failed check is put together. Every library has it once.

#include <cstdio>
#include <cstdlib>

#include "opmatrix/check.h"

namespace opmatrix {

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
