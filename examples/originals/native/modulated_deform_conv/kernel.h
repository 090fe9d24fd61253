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
// Numbers  In double, rounded once.
// Aliasing y overlaps no input.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "opmatrix/check.h"
#include "opmatrix/half.h"
#include "opmatrix/list.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::modulated_deform_conv {

/// Returns an image at a position: bilinear between pixels, 0 outside.
template <typename T>
double sample(const T* image, std::int64_t height, std::int64_t width, double row, double column) {
  if (!(row > -1 && column > -1 && row < static_cast<double>(height) && column < static_cast<double>(width))) return 0;
  const double top = std::floor(row), left = std::floor(column);
  double sum = 0;
  for (std::int64_t down = 0; down < 2; ++down) {
    for (std::int64_t right = 0; right < 2; ++right) {
      const std::int64_t i = static_cast<std::int64_t>(top) + down, j = static_cast<std::int64_t>(left) + right;
      if (i < 0 || j < 0 || i >= height || j >= width) continue;
      const double vertical = down != 0 ? row - top : 1 - (row - top);
      const double horizontal = right != 0 ? column - left : 1 - (column - left);
      sum += vertical * horizontal * static_cast<double>(image[i * width + j]);
    }
  }
  return sum;
}

template <typename T>
void modulated_deform_conv(TensorView<const T> x, TensorView<const T> offset, TensorView<const T> mask,
                           TensorView<const T> weight, OptionalView<const T> bias, List<std::int64_t> stride,
                           List<std::int64_t> padding, List<std::int64_t> dilation, std::int64_t groups,
                           std::int64_t deform_groups, TensorView<T> y) {
  const std::int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const std::int64_t filters = y.size(1), columns = y.size(3), pixels = y.size(2) * columns;
  const std::int64_t depth = weight.size(1), across = weight.size(3), taps = weight.size(2) * across;
  KERNEL_CHECK(channels % deform_groups == 0, "modulated_deform_conv: deform_groups must divide the channels of x, ",
               channels, ", got ", deform_groups);
  const std::int64_t shared = channels / deform_groups;  // channels with the same offsets and masks
  parallel_for(0, y.size(0) * pixels, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> samples(static_cast<std::size_t>(channels * taps));
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t n = at / pixels, pixel = at % pixels;
      for (std::int64_t c = 0; c < channels; ++c) {
        const T* const image = x.data + (n * channels + c) * height * width;
        for (std::int64_t k = 0; k < taps; ++k) {
          const std::int64_t tap = (n * deform_groups + c / shared) * taps + k;
          const auto down = static_cast<double>(offset.data[2 * tap * pixels + pixel]);
          const auto right = static_cast<double>(offset.data[(2 * tap + 1) * pixels + pixel]);
          const std::int64_t row = pixel / columns * stride[0] - padding[0] + k / across * dilation[0];
          const std::int64_t column = pixel % columns * stride[1] - padding[1] + k % across * dilation[1];
          samples[static_cast<std::size_t>(c * taps + k)] =
              sample(image, height, width, static_cast<double>(row) + down, static_cast<double>(column) + right) *
              static_cast<double>(mask.data[tap * pixels + pixel]);
        }
      }
      for (std::int64_t f = 0; f < filters; ++f) {
        const double* const own = samples.data() + f / (filters / groups) * depth * taps;
        double sum = bias ? static_cast<double>(bias->data[f]) : 0;
        for (std::int64_t k = 0; k < depth * taps; ++k) {
          sum += static_cast<double>(weight.data[f * depth * taps + k]) * own[k];
        }
        y.data[(n * filters + f) * pixels + pixel] = static_cast<T>(sum);
      }
    }
  });
}

}  // namespace opmatrix::modulated_deform_conv
