// What ops/strided/reference.py computes; largest is -infinity along an empty axis, and NaN where a NaN is.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "opmatrix/check.h"
#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::strided {

inline void strided(TensorView<const float> x, TensorView<const float> weight, TensorView<const float> factors,
                    TensorView<const std::int64_t> counts, OptionalView<const std::int64_t> pads,
                    OptionalView<const float> first, OptionalView<const float> second, std::int64_t dim,
                    std::int64_t groups, std::int64_t k, List<std::int64_t> padding, List<std::int64_t> stride,
                    List<std::int64_t> dilation, TensorView<float> y, TensorView<float> largest,
                    TensorView<float> repeated, TensorView<std::int64_t> flat, NewTensor<float> kept,
                    NewTensor<std::int64_t> rows, NewTensor<float> slices, NewTensor<std::int64_t> places) {
  const std::int64_t size = x.size(x.rank() - 1), length = y.size(y.rank() - 1), taps = weight.size(0) / groups;
  const std::int64_t count = flat.size(0);
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t at = 0; at < length; ++at) {
      double sum = 0;
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t from = at * stride[0] + tap * dilation[0] - padding[0];
        const bool inside = from >= 0 && from < size;
        sum += (inside ? static_cast<double>(x.data[row * size + from]) : 0.0) * static_cast<double>(weight.data[tap]);
      }
      y.data[row * length + at] = static_cast<float>(sum);
    }
  }

  const std::int64_t axis = dim < 0 ? dim + x.rank() : dim;
  const std::int64_t along = x.size(axis), inner = numel(x.sizes, axis + 1);
  for (std::int64_t i = 0; i < largest.numel(); ++i) {
    float best = -std::numeric_limits<float>::infinity();
    for (std::int64_t at = 0; at < along; ++at) {
      const float value = x.data[(i / inner * along + at) * inner + i % inner];
      if (value > best || std::isnan(value)) best = value;
    }
    largest.data[i] = best;
  }
  for (std::int64_t i = 0; i < repeated.numel(); ++i) {
    const std::int64_t at = i / inner % (along * k);
    repeated.data[i] = x.data[(i / inner / (along * k) * along + at / k) * inner + i % inner];
  }

  std::uint64_t more = first ? static_cast<std::uint64_t>(first->size(0)) : 0;
  if (second) more += static_cast<std::uint64_t>(second->size(1));
  for (std::int64_t i = 0; pads && i < pads->numel(); ++i) more += static_cast<std::uint64_t>(pads->data[i]);
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    flat.data[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(counts.data[i % flat.size(1)]) + more);
  }

  std::vector<std::int64_t> positive;
  for (std::int64_t row = 0; row < count; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < size; ++i) sum += static_cast<double>(x.data[row * size + i]);
    if (sum > 0) positive.push_back(row);
  }
  const auto found = static_cast<std::int64_t>(positive.size());
  const std::int64_t shape[] = {found, size};
  const TensorView<float> to = kept.make(Sizes{shape, 2});
  const TensorView<std::int64_t> indices = rows.make(Sizes{shape, 1});
  for (std::int64_t n = 0; n < found; ++n) {
    indices.data[n] = positive[static_cast<std::size_t>(n)];
    for (std::int64_t i = 0; i < size; ++i) {
      to.data[n * size + i] = x.data[indices.data[n] * size + i] * factors.data[i * size + i];
    }
  }

  std::vector<std::int64_t> chosen;
  const std::int64_t outer = along * inner == 0 ? 0 : x.numel() / (along * inner);
  for (std::int64_t at = 0; at < along; ++at) {
    bool any = false;
    for (std::int64_t i = 0; i < outer * inner; ++i) any |= x.data[(i / inner * along + at) * inner + i % inner] > 0;
    if (any) chosen.push_back(at);
  }
  std::vector<std::int64_t> sizes(x.sizes.begin(), x.sizes.end());
  const auto left = sizes[static_cast<std::size_t>(axis)] = static_cast<std::int64_t>(chosen.size());
  const TensorView<float> slice = slices.make({sizes.data(), x.rank()});
  const TensorView<std::int64_t> place = places.make({&left, 1});
  for (std::int64_t n = 0; n < left; ++n) {
    const std::int64_t at = place.data[n] = chosen[static_cast<std::size_t>(n)];
    for (std::int64_t i = 0; i < outer * inner; ++i) {
      slice.data[(i / inner * left + n) * inner + i % inner] = x.data[(i / inner * along + at) * inner + i % inner];
    }
  }
}

}  // namespace opmatrix::strided
