// How kernels use the threads of the framework that runs them.
#pragma once

#include <cstdint>

namespace opmatrix {

namespace detail {
/// A function object without its type: parallel_for is then compiled once, and not with each kernel.
using Range = void (*)(const void* f, std::int64_t begin, std::int64_t end);

void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, Range call, const void* f);
}  // namespace detail

/// Covers [begin, end) with calls `f(from, to)`, on several threads where the framework has them.
///
/// Ranges are disjoint and not empty, and a range of `grain` indices or fewer is not split. The number of calls and
/// their bounds are unspecified: f must compute an index in the same way in every range, so that results do not depend
/// on the number of threads. The caller receives the first exception that f throws; work that has not begun is
/// dropped. A parallel_for within f is serial.
template <typename F>
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, const F& f) {
  const auto call = [](const void* object, std::int64_t from, std::int64_t to) {
    (*static_cast<const F*>(object))(from, to);
  };
  detail::parallel_for(begin, end, grain, call, &f);
}

}  // namespace opmatrix
