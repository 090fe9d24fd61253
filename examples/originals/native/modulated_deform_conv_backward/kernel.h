// The gradients of a modulated deformable convolution (DCNv2).
//
//   y[n, f, p, q] = bias[f] + sum over c, i, j of weight[f, c, i, j] * mask[n, t, p, q] * x(n, c, row, column)
//
// as in modulated_deform_conv, with gathered[n, c, i, j, p, q] = sum over f of weight[f, c, i, j] * grad_y[n, f, p, q]:
//
//   grad_x       each pixel gets gathered * mask times its share of the samples that it is part of
//   grad_offset  gathered * mask times the change of the sample with the row and with the column, summed over channels
//   grad_mask    gathered times the sample, summed over channels
//   grad_weight  grad_y * mask times the sample, summed over samples of x and pixels of y
//   grad_bias    grad_y, summed in the same way
//
// Between  The sample has a bend at each pixel; there the slope is that towards the next pixel,
//          as in mmcv (Apache-2.0). A tap outside, or with a NaN as an offset, adds nothing to the first three.
// Numbers  In double, rounded once.
// Aliasing No output overlaps an input.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "opmatrix/check.h"
#include "opmatrix/half.h"
#include "opmatrix/list.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::modulated_deform_conv_backward {

/// A position between four pixels: the pixel above and left of it, and how far it is below and right of that.
struct Position {
  std::int64_t top = 0, left = 0;
  double below = 0, right = 0;
  bool inside = false;

  Position(double row, double column, std::int64_t height, std::int64_t width)
      : inside(row > -1 && column > -1 && row < static_cast<double>(height) && column < static_cast<double>(width)) {
    if (!inside) return;
    top = static_cast<std::int64_t>(std::floor(row));
    left = static_cast<std::int64_t>(std::floor(column));
    below = row - std::floor(row);
    right = column - std::floor(column);
  }

  /// Calls `f(pixel, vertical, horizontal, down, across)` for each of its pixels in the image: the index of the pixel,
  /// its share in each direction, and the sign with which the position moves towards it.
  template <typename F>
  void each_pixel(std::int64_t height, std::int64_t width, const F& f) const {
    for (std::int64_t corner = 0; inside && corner < 4; ++corner) {
      const std::int64_t i = top + corner / 2, j = left + corner % 2;
      if (i < 0 || j < 0 || i >= height || j >= width) continue;
      f(i * width + j, i > top ? below : 1 - below, j > left ? right : 1 - right, i > top ? 1.0 : -1.0,
        j > left ? 1.0 : -1.0);
    }
  }
};

/// The sizes and the windows of one call.
template <typename T>
struct Windows {
  TensorView<const T> offset;
  List<std::int64_t> stride, padding, dilation;
  std::int64_t deform_groups, channels, height, width, across, taps, columns, pixels;

  /// Where tap k of a channel's group is for a pixel of y.
  Position at(std::int64_t n, std::int64_t c, std::int64_t k, std::int64_t pixel) const {
    const std::int64_t tap = tap_of(n, c, k);
    const std::int64_t row = pixel / columns * stride[0] - padding[0] + k / across * dilation[0];
    const std::int64_t column = pixel % columns * stride[1] - padding[1] + k % across * dilation[1];
    return {static_cast<double>(row) + static_cast<double>(offset.data[2 * tap * pixels + pixel]),
            static_cast<double>(column) + static_cast<double>(offset.data[(2 * tap + 1) * pixels + pixel]), height,
            width};
  }

  std::int64_t tap_of(std::int64_t n, std::int64_t c, std::int64_t k) const {
    return (n * deform_groups + c / (channels / deform_groups)) * taps + k;
  }
};

template <typename T>
void modulated_deform_conv_backward(TensorView<const T> grad_y, TensorView<const T> x, TensorView<const T> offset,
                                    TensorView<const T> mask, TensorView<const T> weight, List<std::int64_t> stride,
                                    List<std::int64_t> padding, List<std::int64_t> dilation, std::int64_t groups,
                                    std::int64_t deform_groups, TensorView<T> grad_x, TensorView<T> grad_offset,
                                    TensorView<T> grad_mask, TensorView<T> grad_weight, TensorView<T> grad_bias) {
  const std::int64_t samples = x.size(0), channels = x.size(1), height = x.size(2), width = x.size(3);
  const std::int64_t filters = weight.size(0), depth = weight.size(1), taps = weight.size(2) * weight.size(3);
  const std::int64_t pixels = grad_y.size(2) * grad_y.size(3), filters_each = filters / groups;
  KERNEL_CHECK(channels % deform_groups == 0,
               "modulated_deform_conv_backward: deform_groups must divide the channels of x, ", channels, ", got ",
               deform_groups);
  const std::int64_t shared = channels / deform_groups;  // channels with the same offsets and masks
  const Windows<T> windows{offset, stride, padding,        dilation, deform_groups,  channels,
                           height, width,  weight.size(3), taps,     grad_y.size(3), pixels};

  // Of one sample and one group of offsets: its channels, offsets and masks are no other's.
  parallel_for(0, samples * deform_groups, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> image(static_cast<std::size_t>(height * width));
    std::vector<double> moved(static_cast<std::size_t>(3 * taps * pixels));  // of rows, columns and masks
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t n = at / deform_groups, first = at % deform_groups * shared;
      moved.assign(moved.size(), 0);
      for (std::int64_t c = first; c < first + shared; ++c) {
        const T* const from = x.data + (n * channels + c) * height * width;
        image.assign(image.size(), 0);
        for (std::int64_t k = 0; k < taps; ++k) {
          const T* const factor = mask.data + windows.tap_of(n, c, k) * pixels;
          for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
            double gathered = 0;
            for (std::int64_t f = c / depth * filters_each; f < (c / depth + 1) * filters_each; ++f) {
              gathered += static_cast<double>(weight.data[(f * depth + c % depth) * taps + k]) *
                          static_cast<double>(grad_y.data[(n * filters + f) * pixels + pixel]);
            }
            const Position position = windows.at(n, c, k, pixel);
            if (!position.inside) continue;
            const double masked = gathered * static_cast<double>(factor[pixel]);
            double value = 0, with_row = 0, with_column = 0;
            position.each_pixel(height, width,
                                [&](std::int64_t i, double vertical, double horizontal, double down, double across) {
                                  const auto v = static_cast<double>(from[i]);
                                  value += vertical * horizontal * v;
                                  with_row += down * horizontal * v;
                                  with_column += across * vertical * v;
                                  image[static_cast<std::size_t>(i)] += masked * vertical * horizontal;
                                });
            double* const sums = moved.data() + 3 * (k * pixels + pixel);
            sums[0] += masked * with_row;
            sums[1] += masked * with_column;
            sums[2] += gathered * value;
          }
        }
        T* const to = grad_x.data + (n * channels + c) * height * width;
        for (std::int64_t i = 0; i < height * width; ++i) to[i] = static_cast<T>(image[static_cast<std::size_t>(i)]);
      }
      for (std::int64_t i = 0; i < taps * pixels; ++i) {
        const std::int64_t tap = at * taps + i / pixels, pixel = i % pixels;
        const double* const sums = moved.data() + 3 * i;
        grad_offset.data[2 * tap * pixels + pixel] = static_cast<T>(sums[0]);
        grad_offset.data[(2 * tap + 1) * pixels + pixel] = static_cast<T>(sums[1]);
        grad_mask.data[tap * pixels + pixel] = static_cast<T>(sums[2]);
      }
    }
  });

  // Of one channel: its weights in the filters of its group.
  parallel_for(0, channels, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(static_cast<std::size_t>(filters_each * taps));
    for (std::int64_t c = begin; c < end; ++c) {
      sums.assign(sums.size(), 0);
      for (std::int64_t n = 0; n < samples; ++n) {
        const T* const from = x.data + (n * channels + c) * height * width;
        for (std::int64_t i = 0; i < taps * pixels; ++i) {
          const std::int64_t k = i / pixels, pixel = i % pixels;
          double value = 0;
          windows.at(n, c, k, pixel)
              .each_pixel(height, width, [&](std::int64_t at, double vertical, double horizontal, double, double) {
                value += vertical * horizontal * static_cast<double>(from[at]);
              });
          value *= static_cast<double>(mask.data[windows.tap_of(n, c, k) * pixels + pixel]);
          for (std::int64_t f = 0; f < filters_each; ++f) {
            const std::int64_t filter = c / depth * filters_each + f;
            sums[static_cast<std::size_t>(f * taps + k)] +=
                value * static_cast<double>(grad_y.data[(n * filters + filter) * pixels + pixel]);
          }
        }
      }
      for (std::int64_t i = 0; i < filters_each * taps; ++i) {
        const std::int64_t filter = c / depth * filters_each + i / taps;
        grad_weight.data[(filter * depth + c % depth) * taps + i % taps] =
            static_cast<T>(sums[static_cast<std::size_t>(i)]);
      }
    }
  });

  for (std::int64_t f = 0; f < filters; ++f) {
    double sum = 0;
    for (std::int64_t i = 0; i < samples * pixels; ++i) {
      sum += static_cast<double>(grad_y.data[(i / pixels * filters + f) * pixels + i % pixels]);
    }
    grad_bias.data[f] = static_cast<T>(sum);
  }
}

}  // namespace opmatrix::modulated_deform_conv_backward
