// The largest number of those that an index sends to one place.
//
//   y[b, index[b, e, k], k] = the largest src[b, e, k],  arg_out = the first e that has it
//
// b, e and k are the axes of src before `dim`, `dim`, and those behind it.
//
// Index    It broadcasts as torch_scatter's: a vector along `dim`, any other with axes of size 1 added at its end.
// Size     y has the shape of src, but for the axis `dim`: its size is that of `out`, else `dim_size`, else the largest
//          index plus 1. An index outside is an error.
// Start    Values of `out` that are not smaller than all that come to their place stay. Without `out`, a place starts
//          with the lowest finite number of the dtype, and one that still has it at the end is 0.
// Arg      src.size(dim) where nothing was written.
// Numbers  NaN is larger than nothing, so it is never written.
// Aliasing y is no `out`: the result is functional.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "opmatrix/check.h"
#include "opmatrix/half.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::scatter_max {

/// An index that broadcasts to the shape of src.
class Index {
 public:
  Index(TensorView<const std::int64_t> given, Sizes src, std::int64_t dim)
      : data_(given.data), strides_(static_cast<std::size_t>(src.rank), 0) {
    const std::int64_t first = given.rank() == 1 ? dim : 0;
    bool fits = first + given.rank() <= src.rank;
    for (std::int64_t axis = given.rank() - 1, stride = 1; fits && axis >= 0; --axis) {
      const std::int64_t size = given.size(axis);
      fits = size == 1 || size == src[first + axis];
      strides_[static_cast<std::size_t>(first + axis)] = size == 1 ? 0 : stride;
      stride *= size;
    }
    KERNEL_CHECK(fits, "scatter_max: index must have a shape that broadcasts to that of src, ", src, ", got ",
                 given.sizes);
  }

  /// The index of an element of src, by its flat index.
  std::int64_t at(std::int64_t element, Sizes src) const {
    std::int64_t found = 0;
    for (std::int64_t axis = src.rank - 1; axis >= 0; --axis) {
      found += element % src[axis] * strides_[static_cast<std::size_t>(axis)];
      element /= src[axis];
    }
    return data_[found];
  }

 private:
  const std::int64_t* data_;
  std::vector<std::int64_t> strides_;
};

template <typename T>
void scatter_max(TensorView<const T> src, TensorView<const std::int64_t> index, OptionalView<const T> out,
                 std::int64_t dim, std::optional<std::int64_t> dim_size, NewTensor<T> y,
                 NewTensor<std::int64_t> arg_out) {
  dim = dim < 0 ? dim + src.rank() : dim;
  const Index indices(index, src.sizes, dim);
  const std::int64_t along = src.size(dim), inner = numel(src.sizes, dim + 1);
  std::vector<std::int64_t> sizes(src.sizes.begin(), src.sizes.end());
  std::int64_t& places = sizes[static_cast<std::size_t>(dim)];
  if (out) {
    const bool same_rank = out->rank() == src.rank();
    places = same_rank ? out->size(dim) : 0;
    const Sizes wanted{sizes.data(), src.rank()};
    KERNEL_CHECK(same_rank && out->sizes == wanted, "scatter_max: out must have the shape of src but for axis ", dim,
                 ", ", src.sizes, ", got ", out->sizes);
  } else if (dim_size && *dim_size >= 0) {
    places = *dim_size;
  } else {
    std::int64_t largest = -1;
    for (std::int64_t i = 0; i < src.numel(); ++i) largest = std::max(largest, index.data[i % index.numel()]);
    KERNEL_CHECK(largest < std::numeric_limits<std::int64_t>::max() / std::max<std::int64_t>(src.numel(), 1),
                 "scatter_max: index has ", largest, ", and a result of that size has too many elements");
    places = largest + 1;
  }

  const T lowest = std::numeric_limits<T>::lowest();
  const TensorView<T> to = y.make({sizes.data(), src.rank()});
  const TensorView<std::int64_t> arg = arg_out.make({sizes.data(), src.rank()});
  for (std::int64_t i = 0; i < to.numel(); ++i) to.data[i] = out ? out->data[i] : src.numel() == 0 ? T{} : lowest;
  for (std::int64_t i = 0; i < to.numel(); ++i) arg.data[i] = along;
  for (std::int64_t i = 0; i < src.numel(); ++i) {
    const std::int64_t place = indices.at(i, src.sizes);
    KERNEL_CHECK(place >= 0 && place < places, "scatter_max: index has ", place, ", allowed: 0 to ", places - 1);
    const std::int64_t row = i / inner, target = (row / along * places + place) * inner + i % inner;
    if (!(src.data[i] > to.data[target])) continue;
    to.data[target] = src.data[i];
    arg.data[target] = row % along;
  }
  for (std::int64_t i = 0; !out && i < to.numel(); ++i) {
    if (to.data[i] == lowest) to.data[i] = T{};
  }
}

}  // namespace opmatrix::scatter_max
