// A deformable convolution, as torchvision's deform_conv2d: what ops/deform_conv/reference.py computes.
#pragma once

#include <cmath>
#include <cstdint>

#include "opmatrix/check.h"
#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::deform_conv {

/// The value between four pixels; 0 outside of the image.
inline double between_pixels(const double* image, std::int64_t height, std::int64_t width, double row, double column) {
  if (!(row > -1 && row < static_cast<double>(height) && column > -1 && column < static_cast<double>(width))) return 0;
  const auto above = static_cast<std::int64_t>(std::floor(row)), left = static_cast<std::int64_t>(std::floor(column));
  const auto pixel = [&](std::int64_t i, std::int64_t j) {
    return i >= 0 && i < height && j >= 0 && j < width ? image[i * width + j] : 0.0;
  };
  const double down = row - static_cast<double>(above), right = column - static_cast<double>(left);
  return (pixel(above, left) * (1 - right) + pixel(above, left + 1) * right) * (1 - down) +
         (pixel(above + 1, left) * (1 - right) + pixel(above + 1, left + 1) * right) * down;
}

inline void deform_conv(TensorView<const double> x, TensorView<const double> weight, TensorView<const double> offset,
                        OptionalView<const double> mask, OptionalView<const double> bias, std::int64_t groups,
                        std::int64_t offset_groups, List<std::int64_t> stride, List<std::int64_t> padding,
                        List<std::int64_t> dilation, TensorView<double> y) {
  const std::int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const std::int64_t maps = y.size(1), rows = y.size(2), columns = y.size(3), places = rows * columns;
  const std::int64_t per_group = weight.size(1), kh = weight.size(2), kw = weight.size(3), taps = kh * kw;
  KERNEL_CHECK(channels % offset_groups == 0, "deform_conv: offset_groups must divide the channels, ", channels);
  for (std::int64_t at = 0; at < y.numel(); ++at) {
    const std::int64_t sample = at / places / maps, map = at / places % maps, place = at % places;
    const std::int64_t first = map / (maps / groups) * per_group;
    double sum = bias ? bias->data[map] : 0.0;
    for (std::int64_t c = 0; c < per_group; ++c) {
      const std::int64_t channel = first + c, moved = channel / (channels / offset_groups);
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t own = (sample * offset_groups + moved) * taps + tap;
        const double row = static_cast<double>(place / columns * stride[0] - padding[0] + tap / kw * dilation[0]) +
                           offset.data[2 * own * places + place];
        const double column = static_cast<double>(place % columns * stride[1] - padding[1] + tap % kw * dilation[1]) +
                              offset.data[(2 * own + 1) * places + place];
        const double value =
            between_pixels(x.data + (sample * channels + channel) * height * width, height, width, row, column);
        sum += weight.data[(map * per_group + c) * taps + tap] * value * (mask ? mask->data[own * places + place] : 1);
      }
    }
    y.data[at] = sum;
  }
}

}  // namespace opmatrix::deform_conv
