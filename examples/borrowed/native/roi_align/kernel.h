// Means over a grid of bins in each of K boxes, of feature maps sampled between their pixels.
//
//   pooled[k, c, i, j] = mean over the g samples along y and the h along x of map(input[n, c], y, x)
//   y = y1 + i * bin + (a + 0.5) * bin / g for a = 0 .. g - 1, with bin = (y2 - y1) / pooled_height; x alike
//
// K. He, G. Gkioxari, P. Dollar, R. Girshick, Mask R-CNN, 2017; the details are those of torchvision 0.29.
//
// Boxes    rois[k] is n, x1, y1, x2, y2; n is cut to a whole number. The corners are times spatial_scale, less 0.5 with
//          `aligned`; without it a box is at least 1 wide and high.
// Samples  g = sampling_ratio, or with 0 or less the size of a bin, rounded up: none where a box ends too early.
// Map      Bilinear between the four pixels around; up to one pixel outside, the nearest; 0 farther away, and at NaN.
// Numbers  Positions and sums are double. A pixel of NaN or infinity counts also where its weight is 0, as there.
// Shapes   input (N, C, H, W), rois (K, 5), pooled (K, C, pooled_height, pooled_width).
// Aliasing No output overlaps an input.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "opmatrix/check.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::roi_align {

/// A sample along one axis: two pixels and what each counts.
struct Sample {
  std::int64_t low, high;
  double low_weight, high_weight;
};

/// What is sampled along one axis of a box: those samples of each bin that are on the map, one bin after the other.
struct Axis {
  std::vector<Sample> samples;
  std::vector<std::size_t> ends;  // of the bins
  double per_bin = 0;             // with those that are not on the map
};

/// Sets `axis` to the samples of a box from `begin` to `end` on `pixels` pixels in a row.
inline void sample(double begin, double end, std::int64_t bins, std::int64_t pixels, std::int64_t ratio, bool aligned,
                   Axis& axis) {
  constexpr double kMost = 4096;
  double length = end - begin;
  if (!aligned && length < 1) length = 1;
  const double bin = length / static_cast<double>(bins);
  const double wanted = ratio > 0 ? static_cast<double>(ratio) : std::ceil(bin);
  KERNEL_CHECK(!(wanted > kMost), "roi_align: a box from ", begin, " to ", end, " with sampling_ratio ", ratio,
               " has more than ", kMost, " samples along a bin; give sampling_ratio from 1 to ", kMost);
  axis.samples.clear();
  axis.ends.clear();
  axis.per_bin = wanted > 0 ? wanted : 0;  // a NaN is none
  const auto count = static_cast<std::int64_t>(axis.per_bin);
  for (std::int64_t i = 0; i < bins; ++i) {
    for (std::int64_t a = 0; a < count; ++a) {
      const double at = begin + static_cast<double>(i) * bin + (static_cast<double>(a) + 0.5) * bin / wanted;
      if (!(at >= -1 && at <= static_cast<double>(pixels))) continue;
      const auto low = static_cast<std::int64_t>(at > 0 ? at : 0);
      if (low >= pixels - 1) {
        axis.samples.push_back({pixels - 1, pixels - 1, 1, 0});
      } else {
        const double rest = at > 0 ? at - static_cast<double>(low) : 0;
        axis.samples.push_back({low, low + 1, 1 - rest, rest});
      }
    }
    axis.ends.push_back(axis.samples.size());
  }
}

/// Returns the sum of a bin: the samples [y, y_end) of `rows`, and of `columns` [x, x_end).
template <typename T>
double sum(const T* map, std::int64_t width, const Axis& rows, std::size_t y, std::size_t y_end, const Axis& columns,
           std::size_t x, std::size_t x_end) {
  double total = 0;
  for (; y < y_end; ++y) {
    const Sample& row = rows.samples[y];
    const T* const upper = map + row.low * width;
    const T* const lower = map + row.high * width;
    for (std::size_t i = x; i < x_end; ++i) {
      const Sample& column = columns.samples[i];
      total += row.low_weight * (column.low_weight * static_cast<double>(upper[column.low]) +
                                 column.high_weight * static_cast<double>(upper[column.high])) +
               row.high_weight * (column.low_weight * static_cast<double>(lower[column.low]) +
                                  column.high_weight * static_cast<double>(lower[column.high]));
    }
  }
  return total;
}

template <typename T>
void roi_align(TensorView<const T> input, TensorView<const T> rois, float spatial_scale, std::int64_t pooled_height,
               std::int64_t pooled_width, std::int64_t sampling_ratio, bool aligned, TensorView<T> pooled) {
  if (pooled.numel() == 0) return;
  const std::int64_t maps = input.size(0), channels = input.size(1), height = input.size(2), width = input.size(3);
  KERNEL_CHECK(maps > 0 && height > 0 && width > 0, "roi_align: input has no maps or no pixels: ", input.sizes);
  for (std::int64_t k = 0; k < rois.size(0); ++k) {
    const double map = static_cast<double>(rois.data[k * 5]);
    KERNEL_CHECK(map > -1 && map < static_cast<double>(maps), "roi_align: rois[", k, ", 0] is ", map,
                 ", allowed: 0 to ", maps - 1, ", the index of a map");
  }
  const double scale = static_cast<double>(spatial_scale);
  const double shift = aligned ? 0.5 : 0;
  const std::int64_t bins = pooled_height * pooled_width;

  const auto pool = [&](std::int64_t first, std::int64_t last) {
    Axis rows, columns;
    for (std::int64_t k = first; k < last; ++k) {
      double box[4];
      for (int n = 0; n < 4; ++n) box[n] = static_cast<double>(rois.data[k * 5 + 1 + n]) * scale - shift;
      sample(box[0], box[2], pooled_width, width, sampling_ratio, aligned, columns);
      sample(box[1], box[3], pooled_height, height, sampling_ratio, aligned, rows);
      const double samples = rows.per_bin * columns.per_bin;
      const double count = samples > 1 ? samples : 1;
      const T* const maps_of_box = input.data + static_cast<std::int64_t>(rois.data[k * 5]) * channels * height * width;
      for (std::int64_t c = 0; c < channels; ++c) {
        const T* const map = maps_of_box + c * height * width;
        T* to = pooled.data + (k * channels + c) * bins;
        for (std::size_t i = 0, y = 0; i < rows.ends.size(); y = rows.ends[i++]) {
          for (std::size_t j = 0, x = 0; j < columns.ends.size(); x = columns.ends[j++]) {
            *to++ = static_cast<T>(sum(map, width, rows, y, rows.ends[i], columns, x, columns.ends[j]) / count);
          }
        }
      }
    }
  };
  constexpr std::int64_t kResultsPerThread = 8192;
  parallel_for(0, rois.size(0), 1 + kResultsPerThread / (channels * bins), pool);
}

}  // namespace opmatrix::roi_align
