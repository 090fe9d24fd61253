// Modulated deformable convolution (DCNv2).
//
//   y[n, f, p, q] = bias[f] + sum over c, i, j of weight[f, c, i, j] * mask[n, t, p, q] * x(n, c, row, column)
//   row    = p * stride[0] - padding[0] + i * dilation[0] + offset[n, 2 * t, p, q]
//   column = q * stride[1] - padding[1] + j * dilation[1] + offset[n, 2 * t + 1, p, q]
//
// X. Zhu, H. Hu, S. Lin, J. Dai, Deformable ConvNets v2: More Deformable, Better Results, 2018; the order of taps and
// the border are those of mmcv, Apache-2.0.
//
// Taps     t counts the taps (i, j) of the group of deform_groups that the channel c of x is in. The channels of x of a
//          filter are those of its group of `groups`.
// Between  x at a position between pixels is bilinear; a pixel outside the image is 0. At a distance of 1 or more, and
//          for a NaN as an offset, the sample is 0, which a mask that is infinite makes NaN.
// Numbers  Positions and shares of pixels are double. Samples and sums are float for float, and double for the others,
//          rounded once.
// Memory   One copy of x with a border, and one of weight, in the type of the sums.
// Aliasing y overlaps no input.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "opmatrix/check.h"
#include "opmatrix/half.h"
#include "opmatrix/list.h"
#include "opmatrix/parallel.h"
#include "opmatrix/simd.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::modulated_deform_conv {

/// The type of samples and sums.
template <typename T>
struct Sums {
  using type = double;
};
template <>
struct Sums<float> {
  using type = float;
};

// A tile of the product of samples and weights, whose sums are all in registers: pixels by vectors of filters.
constexpr int kPixels = 6;
constexpr int kVectors = 2;
template <typename S>
inline constexpr std::int64_t kFilters = kVectors * simd::kLanes<S>;

/// An image of x with the channels of a pixel side by side, and zeros around: one row above, two below, and a column on
/// each side. So the four pixels around a position less than 1 outside are all there.
template <typename S>
struct Bordered {
  std::int64_t channels, height, width;
  std::vector<S> pixels;

  template <typename T>
  explicit Bordered(TensorView<const T> x)
      : channels(x.size(1)),
        height(x.size(2)),
        width(x.size(3)),
        pixels(static_cast<std::size_t>(x.size(0) * (height + 3) * row_size())) {
    parallel_for(0, x.size(0) * height, 1 + 16384 / (row_size() + 1), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* const from = x.data + (row / height * channels * height + row % height) * width;
        S* const to = image(row / height) + (row % height + 1) * row_size() + channels;
        for (std::int64_t c = 0; c < channels; ++c) {
          for (std::int64_t j = 0; j < width; ++j) to[j * channels + c] = static_cast<S>(from[c * height * width + j]);
        }
      }
    });
  }

  std::int64_t row_size() const { return (width + 2) * channels; }
  S* image(std::int64_t n) { return pixels.data() + n * (height + 3) * row_size(); }
  const S* image(std::int64_t n) const { return pixels.data() + n * (height + 3) * row_size(); }
};

/// Writes a sample of `channels` channels to `to`: bilinear between the pixels at `image`, of which it is `factor`.
template <typename S>
void sample(const Bordered<S>& x, const S* image, std::int64_t channels, double row, double column, S factor, S* to) {
  const S* upper = image + (x.height + 1) * x.row_size();  // zeros
  double below = 0, right = 0;
  if (row > -1 && column > -1 && row < static_cast<double>(x.height) && column < static_cast<double>(x.width)) {
    const double top = std::floor(row), left = std::floor(column);
    upper = image + (static_cast<std::int64_t>(top) + 1) * x.row_size() +
            (static_cast<std::int64_t>(left) + 1) * x.channels;
    below = row - top;
    right = column - left;
  }
  const S* const lower = upper + x.row_size();
  // Rounded last: a mask may make much of a tiny share.
  const S shares[4] = {static_cast<S>((1 - below) * (1 - right)), static_cast<S>((1 - below) * right),
                       static_cast<S>(below * (1 - right)), static_cast<S>(below * right)};
  std::int64_t c = 0;
  for (; c + simd::kLanes<S> <= channels; c += simd::kLanes<S>) {
    simd::Vec<S> sum = simd::load<S>(upper + c) * shares[0];
    sum += simd::load<S>(upper + x.channels + c) * shares[1];
    sum += simd::load<S>(lower + c) * shares[2];
    sum += simd::load<S>(lower + x.channels + c) * shares[3];
    simd::store(to + c, sum * factor);
  }
  for (; c < channels; ++c) {
    to[c] = (upper[c] * shares[0] + upper[x.channels + c] * shares[1] + lower[c] * shares[2] +
             lower[x.channels + c] * shares[3]) *
            factor;
  }
}

/// Adds to `sums` the products of `depth` samples of each of kPixels pixels, which are `apart`, with weights.
template <typename S>
[[gnu::always_inline]] inline void multiply(const S* samples, std::int64_t apart, const S* weights, std::int64_t depth,
                                            simd::Vec<S> (&sums)[kPixels][kVectors]) {
  for (std::int64_t c = 0; c < depth; ++c) {
    simd::Vec<S> factors[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) factors[v] = simd::load<S>(weights + c * kFilters<S> + v * simd::kLanes<S>);
#pragma GCC unroll 6
    for (int p = 0; p < kPixels; ++p) {
      const S one = samples[p * apart + c];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[p][v] += factors[v] * one;
    }
  }
}

template <typename T>
void modulated_deform_conv(TensorView<const T> x, TensorView<const T> offset, TensorView<const T> mask,
                           TensorView<const T> weight, OptionalView<const T> bias, List<std::int64_t> stride,
                           List<std::int64_t> padding, List<std::int64_t> dilation, std::int64_t groups,
                           std::int64_t deform_groups, TensorView<T> y) {
  using S = typename Sums<T>::type;
  const std::int64_t channels = x.size(1), columns = y.size(3), pixels = y.size(2) * columns;
  const std::int64_t depth = weight.size(1), across = weight.size(3), taps = weight.size(2) * across;
  KERNEL_CHECK(channels % deform_groups == 0, "modulated_deform_conv: deform_groups must divide the channels of x, ",
               channels, ", got ", deform_groups);
  if (y.numel() == 0) return;
  const std::int64_t shared = channels / deform_groups;  // channels with the same offsets and masks
  const std::int64_t filters = y.size(1), filters_each = filters / groups;
  const std::int64_t tiles_each = (filters_each + kFilters<S> - 1) / kFilters<S>;  // of a group
  const std::int64_t row = taps * channels;                                        // the samples of a pixel

  struct Tile {
    std::int64_t group, first, count;  // of filters
  };
  const auto tile_at = [&](std::int64_t tile) {
    const std::int64_t group = tile / tiles_each, skipped = tile % tiles_each * kFilters<S>;
    return Tile{group, group * filters_each + skipped, std::min(kFilters<S>, filters_each - skipped)};
  };

  const Bordered<S> bordered(x);
  // The weights of each tile of filters as they are used: by taps, then by channels, kFilters side by side.
  const std::int64_t tile_size = taps * depth * kFilters<S>;
  std::vector<S> weights(static_cast<std::size_t>(groups * tiles_each * tile_size));
  parallel_for(0, groups * tiles_each, 1 + 16384 / (tile_size + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const Tile of = tile_at(tile);
      for (std::int64_t i = 0; i < depth * taps; ++i) {
        S* const to = weights.data() + tile * tile_size + (i % taps * depth + i / taps) * kFilters<S>;
        for (std::int64_t f = 0; f < of.count; ++f)
          to[f] = static_cast<S>(weight.data[(of.first + f) * depth * taps + i]);
      }
    }
  });

  // The samples of a block of pixels are taken once and used by all filters: 256 KiB at most, for the cache.
  const std::int64_t tile_bytes = kPixels * row * static_cast<std::int64_t>(sizeof(S));
  const std::int64_t block = kPixels * std::clamp<std::int64_t>((1 << 18) / (tile_bytes + 1), 1, 16);
  const std::int64_t blocks = (pixels + block - 1) / block;
  parallel_for(0, x.size(0) * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<S> samples(static_cast<std::size_t>(block * row));
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t n = at / blocks, first = at % blocks * block, last = std::min(first + block, pixels);
      for (std::int64_t pixel = first; pixel < last; ++pixel) {
        S* const to = samples.data() + (pixel - first) * row;
        for (std::int64_t k = 0; k < taps; ++k) {
          const std::int64_t i = pixel / columns * stride[0] - padding[0] + k / across * dilation[0];
          const std::int64_t j = pixel % columns * stride[1] - padding[1] + k % across * dilation[1];
          for (std::int64_t group = 0; group < deform_groups; ++group) {
            const std::int64_t tap = (n * deform_groups + group) * taps + k;
            const auto down = static_cast<double>(offset.data[2 * tap * pixels + pixel]);
            const auto right = static_cast<double>(offset.data[(2 * tap + 1) * pixels + pixel]);
            sample(bordered, bordered.image(n) + group * shared, shared, static_cast<double>(i) + down,
                   static_cast<double>(j) + right, static_cast<S>(mask.data[tap * pixels + pixel]),
                   to + k * channels + group * shared);
          }
        }
      }
      for (std::int64_t tile = 0; tile < groups * tiles_each; ++tile) {
        const Tile of = tile_at(tile);
        for (std::int64_t pixel = first; pixel < last; pixel += kPixels) {
          simd::Vec<S> sums[kPixels][kVectors] = {};
          for (std::int64_t k = 0; k < taps; ++k) {  // each in a sum of its own: long sums are less exact
            simd::Vec<S> of_tap[kPixels][kVectors] = {};
            multiply<S>(samples.data() + (pixel - first) * row + k * channels + of.group * depth, row,
                        weights.data() + tile * tile_size + k * depth * kFilters<S>, depth, of_tap);
            for (int p = 0; p < kPixels; ++p) {
              for (int v = 0; v < kVectors; ++v) sums[p][v] += of_tap[p][v];
            }
          }
          S found[kPixels][kFilters<S>];
          __builtin_memcpy(found, sums, sizeof found);
          for (std::int64_t i = 0; i < of.count; ++i) {
            const S summand = bias ? static_cast<S>(bias->data[of.first + i]) : S(0);
            T* const to = y.data + (n * filters + of.first + i) * pixels + pixel;
            for (std::int64_t p = 0; p < std::min<std::int64_t>(kPixels, last - pixel); ++p) {
              to[p] = static_cast<T>(found[p][i] + summand);
            }
          }
        }
      }
    }
  });
}

}  // namespace opmatrix::modulated_deform_conv
