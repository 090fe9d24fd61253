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
// Numbers  Positions and sums are double: first over the rows of a bin, then over its columns. As in torchvision, a
//          pixel of NaN or infinity makes NaN also where its weight is 0.
// Shapes   input (N, C, H, W), rois (K, 5), pooled (K, C, pooled_height, pooled_width).
// Aliasing No output overlaps an input.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "opmatrix/check.h"
#include "opmatrix/parallel.h"
#include "opmatrix/simd.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::roi_align {

/// A sample along one axis: two pixels and what each counts.
struct Sample {
  std::int64_t low, high;
  double weights[2];
};

/// What is sampled along one axis of a box: those samples of each bin that are on the map, one bin after the other.
struct Axis {
  std::vector<Sample> samples;
  std::vector<std::size_t> ends;  // of the bins
  double per_bin = 0;             // with those that are not on the map
};

/// a * b, rounded, also where the sum that it is part of could be one instruction with it: the same positions
/// everywhere.
[[gnu::noinline]] inline double product(double a, double b) {
  return a * b;
}

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
      const double at = begin + product(static_cast<double>(i), bin) + (static_cast<double>(a) + 0.5) * bin / wanted;
      if (!(at >= -1 && at <= static_cast<double>(pixels))) continue;
      const auto low = static_cast<std::int64_t>(at > 0 ? at : 0);
      if (low >= pixels - 1) {
        axis.samples.push_back({pixels - 1, pixels - 1, {1, 0}});
      } else {
        const double rest = at > 0 ? at - static_cast<double>(low) : 0;
        axis.samples.push_back({low, low + 1, {1 - rest, rest}});
      }
    }
    axis.ends.push_back(axis.samples.size());
  }
}

/// The columns of the map that a box needs, in which the rows of a bin are summed.
///
/// Where they are close, these are all from the first to the last, and some more up to full vectors; `pixels` is empty
/// then. Otherwise they are the two of each sample, one by one.
class Line {
 public:
  /// Chooses them for a box on a map of `width` columns. `low` of each sample becomes the place of its columns, which
  /// are side by side: the last column of the map is there twice.
  void choose(Axis& columns, std::int64_t width) {
    std::int64_t last = -1;
    first_ = width;
    for (const Sample& sample : columns.samples) {
      first_ = std::min(first_, sample.low);
      last = std::max(last, sample.high);
    }
    const auto samples = static_cast<std::int64_t>(columns.samples.size());
    const std::int64_t whole = samples > 0 ? (last - first_ + kStep) / kStep * kStep : 0;
    pixels_.clear();
    if (whole > width || whole > kStep * samples) {  // a vector costs about as much as a pixel by itself
      for (Sample& sample : columns.samples) {
        pixels_.insert(pixels_.end(), {sample.low, sample.high});
        sample.low = static_cast<std::int64_t>(pixels_.size()) - 2;
      }
      sums_.resize(pixels_.size());
    } else {
      first_ = std::min(first_, width - whole);
      for (Sample& sample : columns.samples) sample.low -= first_;
      sums_.resize(static_cast<std::size_t>(whole + 1));
    }
  }

  /// Sums the samples [row, end) of rows of a map.
  template <typename T>
  void add(const T* map, const Sample* row, const Sample* end) {
    double* const sums = sums_.data();
    if (!pixels_.empty()) {
      for (std::size_t i = 0; i < pixels_.size(); ++i) {
        double sum = 0;
        for (const Sample* y = row; y < end; ++y) {
          sum += y->weights[0] * static_cast<double>(map[y->low + pixels_[i]]) +
                 y->weights[1] * static_cast<double>(map[y->high + pixels_[i]]);
        }
        sums[i] = sum;
      }
      return;
    }
    const auto whole = static_cast<std::int64_t>(sums_.size()) - 1;
    for (std::int64_t i = 0; i < whole; i += kStep) {
      const T* const from = map + first_ + i;
      simd::Vec<double> left{}, right{};
      for (const Sample* y = row; y < end; ++y) {
        left += y->weights[0] * simd::load<double>(from + y->low);
        right += y->weights[0] * simd::load<double>(from + y->low + kStep / 2);
        left += y->weights[1] * simd::load<double>(from + y->high);
        right += y->weights[1] * simd::load<double>(from + y->high + kStep / 2);
      }
      simd::store(sums + i, left);
      simd::store(sums + i + kStep / 2, right);
    }
    if (whole > 0) sums[whole] = sums[whole - 1];
  }

  /// Returns the sum of the samples [column, end) of columns.
  double sum(const Sample* column, const Sample* end) const {
    simd::Vec<double, 2> sums{};
    for (; column < end; ++column) {
      sums += simd::load<double, 2>(sums_.data() + column->low) * simd::load<double, 2>(column->weights);
    }
    return sums[0] + sums[1];
  }

 private:
  static constexpr std::int64_t kStep = 2 * simd::kLanes<double>;

  std::int64_t first_ = 0;
  std::vector<std::int64_t> pixels_;
  std::vector<double> sums_;
};

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

  // Of all boxes, some channels at a time, whose maps stay in the cache.
  constexpr std::int64_t kCache = 1 << 19;
  const std::int64_t map_bytes = height * width * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t some = std::max<std::int64_t>(kCache / map_bytes, 1);
  const auto pool = [&](std::int64_t first, std::int64_t last) {
    Axis rows, columns;
    Line line;
    for (std::int64_t from = 0; from < channels; from += some) {
      for (std::int64_t k = first; k < last; ++k) {
        double box[4];
        for (int n = 0; n < 4; ++n) {
          box[n] = product(static_cast<double>(rois.data[k * 5 + 1 + n]), scale) - shift;
        }
        sample(box[0], box[2], pooled_width, width, sampling_ratio, aligned, columns);
        sample(box[1], box[3], pooled_height, height, sampling_ratio, aligned, rows);
        for (Sample& row : rows.samples) {
          row.low *= width;
          row.high *= width;
        }
        line.choose(columns, width);
        const double samples = rows.per_bin * columns.per_bin;
        const double share = 1 / (samples > 1 ? samples : 1);
        for (std::int64_t c = from; c < std::min(from + some, channels); ++c) {
          const T* const map =
              input.data + (static_cast<std::int64_t>(rois.data[k * 5]) * channels + c) * height * width;
          T* to = pooled.data + (k * channels + c) * bins;
          for (std::size_t i = 0, y = 0; i < rows.ends.size(); y = rows.ends[i++]) {
            line.add(map, rows.samples.data() + y, rows.samples.data() + rows.ends[i]);
            for (std::size_t j = 0, x = 0; j < columns.ends.size(); x = columns.ends[j++]) {
              *to++ = static_cast<T>(share *
                                     line.sum(columns.samples.data() + x, columns.samples.data() + columns.ends[j]));
            }
          }
        }
      }
    }
  };
  constexpr std::int64_t kResultsPerThread = 8192;
  parallel_for(0, rois.size(0), 1 + kResultsPerThread / (channels * bins), pool);
}

}  // namespace opmatrix::roi_align
