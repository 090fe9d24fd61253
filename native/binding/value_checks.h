// Checks of the values of inputs, for declarations with value rules: one pass over the data. This header is C++17:
// bindings over torch's C++ headers are compiled as C++17 for torch before 2.15.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "opmatrix/check.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix {

/// A limit that a rule does not have.
struct NoLimit {};

/// Returns whether `a <= b`, compared by value, for integers of any two types: C++20's std::cmp_less_equal.
template <typename A, typename B>
constexpr bool less_equal(A a, B b) {
  if constexpr (std::is_signed_v<A> == std::is_signed_v<B>) {
    return a <= b;
  } else if constexpr (std::is_signed_v<A>) {
    return a < 0 || static_cast<std::make_unsigned_t<A>>(a) <= b;
  } else {
    return b >= 0 && a <= static_cast<std::make_unsigned_t<B>>(b);
  }
}

template <typename T, typename Limit>
constexpr bool at_least(T value, Limit limit) {
  if constexpr (std::is_same_v<Limit, NoLimit>) {
    return true;
  } else if constexpr (std::is_integral_v<T>) {
    return less_equal(limit, value);
  } else if constexpr (std::numeric_limits<T>::is_integer) {
    return less_equal(limit, static_cast<int>(value));  // an Int4 has not all limits
  } else {
    return value >= static_cast<T>(limit);
  }
}

template <typename T, typename Limit>
constexpr bool at_most(T value, Limit limit) {
  if constexpr (std::is_same_v<Limit, NoLimit>) {
    return true;
  } else if constexpr (std::is_integral_v<T>) {
    return less_equal(value, limit);
  } else if constexpr (std::numeric_limits<T>::is_integer) {
    return less_equal(static_cast<int>(value), limit);
  } else {
    return value <= static_cast<T>(limit);
  }
}

/// `first && second` without a branch: nearly all elements are right, so a branch only takes time.
constexpr bool both(bool first, bool second) {
  return (static_cast<int>(first) & static_cast<int>(second)) != 0;
}

// What a value must be. Each returns a function of the value.

constexpr auto any_value() {
  return [](auto) { return true; };
}

/// A limit is rounded to the type of the value; NaN is outside all limits.
template <typename Low, typename High>
constexpr auto between(Low low, High high) {
  return [=](auto value) { return both(at_least(value, low), at_most(value, high)); };
}

template <typename... Values>
constexpr auto one_of(Values... values) {
  return [=](auto value) { return ((value == static_cast<decltype(value)>(values)) || ...); };
}

/// Also `further`; a whole number is always finite.
template <typename Further>
constexpr auto finite(Further further) {
  return [=](auto value) {
    if constexpr (std::numeric_limits<decltype(value)>::is_integer) {
      return further(value);
    } else {
      constexpr auto greatest = std::numeric_limits<decltype(value)>::max();
      return value >= -greatest && value <= greatest && further(value);
    }
  };
}

// What neighbours along the last axis must be.

/// Marks that neighbours are not compared.
struct AnyOrder {
  template <typename T>
  constexpr bool operator()(T, T) const {
    return true;
  }
};

struct Ascending {
  template <typename T>
  constexpr bool operator()(T before, T value) const {
    return before <= value;
  }
};

struct Descending {
  template <typename T>
  constexpr bool operator()(T before, T value) const {
    return before >= value;
  }
};

struct StrictlyAscending {
  template <typename T>
  constexpr bool operator()(T before, T value) const {
    return before < value;
  }
};

struct StrictlyDescending {
  template <typename T>
  constexpr bool operator()(T before, T value) const {
    return before > value;
  }
};

// What the first and the last value along the last axis must be.

/// Marks that these may be any values.
struct AnyEnds {
  template <typename T>
  constexpr bool first_is_right(T) const {
    return true;
  }
  template <typename T>
  constexpr bool last_is_right(T) const {
    return true;
  }
};

/// Limits that the values must be equal to, rounded to their type.
template <typename First, typename Last>
struct Ends {
  First first;
  Last last;

  template <typename T>
  constexpr bool first_is_right(T value) const {
    return both(at_least(value, first), at_most(value, first));
  }
  template <typename T>
  constexpr bool last_is_right(T value) const {
    return both(at_least(value, last), at_most(value, last));
  }
};

template <typename First, typename Last>
Ends(First, Last) -> Ends<First, Last>;  // clang before 17 deduces none for an aggregate

/// Whether the last axis has an element, so that there is a first and a last one along it.
template <typename T>
bool has_ends(const TensorView<const T>& tensor) {
  return tensor.rank() == 0 || tensor.size(tensor.rank() - 1) > 0;
}

/// What an element breaks: what its value, its order after the one before it, or an end of its row must be.
enum class Broken { nothing, value, order, end };

/// The first element that breaks a rule, if there is one.
template <typename T>
class WrongElement {
 public:
  WrongElement() = default;
  WrongElement(const TensorView<const T>& tensor, std::int64_t element, Broken broken)
      : tensor_(tensor), element_(element), broken_(broken) {
    std::int64_t rest = element;
    for (std::int64_t axis = tensor.rank() - 1; axis >= 0; --axis) {
      place_[axis] = rest % tensor.size(axis);
      rest /= tensor.size(axis);
    }
  }

  bool value_is_right() const { return broken_ != Broken::value; }
  bool order_is_right() const { return broken_ != Broken::order; }
  bool end_is_right() const { return broken_ != Broken::end; }

  Part value() const { return printed(tensor_.data[element_]); }
  Part before() const { return printed(tensor_.data[element_ - 1]); }
  /// Its index along each axis.
  Sizes place() const { return {place_, tensor_.rank()}; }

 private:
  static Part printed(T value) {
    if constexpr (!std::is_integral_v<T>) {
      return +value;  // a float of a Half, an int of an Int4
    } else {
      if (less_equal(value, std::numeric_limits<std::int64_t>::max())) return static_cast<std::int64_t>(value);
      return static_cast<double>(value);  // a uint64 that a Part cannot hold
    }
  }

  TensorView<const T> tensor_;
  std::int64_t element_ = 0;
  Broken broken_ = Broken::nothing;
  std::int64_t place_[64] = {};
};

/// Returns the first element that is not `allowed`, that is not in `order` with the one before it in the last axis, or
/// that is not as `ends` at an end of this axis.
template <typename T, typename Allowed, typename Order, typename RowEnds = AnyEnds>
WrongElement<T> wrong_element(const TensorView<const T>& tensor, Allowed allowed, Order order, RowEnds ends = {}) {
  const std::int64_t count = tensor.numel();
  const bool rows = !std::is_same_v<Order, AnyOrder> && tensor.rank() > 0;
  const std::int64_t row = rows ? tensor.size(tensor.rank() - 1) : count;
  for (std::int64_t begin = 0; begin < count; begin += row) {
    const T* const data = tensor.data + begin;
    bool right = both(allowed(data[0]), both(ends.first_is_right(data[0]), ends.last_is_right(data[row - 1])));
    for (std::int64_t i = 1; i < row; ++i) right &= both(allowed(data[i]), order(data[i - 1], data[i]));
    if (right) continue;
    for (std::int64_t i = 0; i < row; ++i) {
      if (!allowed(data[i])) return {tensor, begin + i, Broken::value};
      if (i > 0 && !order(data[i - 1], data[i])) return {tensor, begin + i, Broken::order};
      if (i == 0 && !ends.first_is_right(data[i])) return {tensor, begin + i, Broken::end};
      if (i == row - 1 && !ends.last_is_right(data[i])) return {tensor, begin + i, Broken::end};
    }
  }
  return {};
}

}  // namespace opmatrix
