// Non-maximum suppression: of boxes that overlap much, the one with the highest score is kept.
//
// A box is used where `valid` is true (all are without it) and where its score, times every factor, is greater than
// score_threshold. From the highest score down, equal scores by index: a box is kept, unless one that was kept before,
// of the same class (all are of one class without `classes`), overlaps it with
//   area of the intersection > iou_threshold * area of the union
//
// Shapes   boxes (N, 4) with axis -1 or 1, (4, N) with axis -2 or 0; all others (N,). indices and selected hold the M
//          kept boxes, the highest score first; kept (N,). At most max_boxes are kept, with 0 any number.
// Boxes    "corners": two opposite corners x, y, x, y. "center": center and size x, y, w, h. coordinates[k] is where
//          along the axis the k-th of these four is: (1, 0, 3, 2) for y, x, y, x.
// Numbers  Scores and areas are computed in double.
// NaN      A score of NaN is greater than nothing; a box with NaN overlaps nothing.
// Aliasing No output overlaps an input.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "opmatrix/check.h"
#include "opmatrix/half.h"
#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::nms {

struct Box {
  double left, top, right, bottom;

  double area() const { return (right - left) * (bottom - top); }
};

struct Candidate {
  double score;
  std::int64_t index;
  Box box;
};

/// Some candidates, as many as there may be. Half the time of std::vector and std::sort to compile.
class Candidates {
 public:
  explicit Candidates(std::int64_t room) : data_(new Candidate[static_cast<std::size_t>(room)]) {}
  Candidates(const Candidates&) = delete;
  Candidates& operator=(const Candidates&) = delete;
  ~Candidates() { delete[] data_; }

  void add(const Candidate& candidate) { data_[count_++] = candidate; }
  std::int64_t size() const { return count_; }
  const Candidate* begin() const { return data_; }
  const Candidate* end() const { return data_ + count_; }

  /// The highest score first, equal scores by index.
  void sort() {
    std::qsort(data_, static_cast<std::size_t>(count_), sizeof(Candidate), [](const void* left, const void* right) {
      const auto& a = *static_cast<const Candidate*>(left);
      const auto& b = *static_cast<const Candidate*>(right);
      const bool first = a.score > b.score || (a.score == b.score && a.index < b.index);
      return first ? -1 : a.index != b.index;
    });
  }

 private:
  Candidate* data_;
  std::int64_t count_ = 0;
};

inline Box from_corners(double x, double y, double other_x, double other_y) {
  // A NaN in one of two makes the area NaN, whichever of them it is.
  return {x < other_x ? x : other_x, y < other_y ? y : other_y, x < other_x ? other_x : x, y < other_y ? other_y : y};
}

/// Whether two boxes overlap by more than `threshold` of what they cover together; a NaN compares false.
inline bool overlap(const Box& a, const Box& b, double threshold) {
  const double width = (a.right < b.right ? a.right : b.right) - (a.left < b.left ? b.left : a.left);
  const double height = (a.bottom < b.bottom ? a.bottom : b.bottom) - (a.top < b.top ? b.top : a.top);
  const double shared = width > 0 && height > 0 ? width * height : 0;
  return shared > threshold * (a.area() + b.area() - shared);
}

/// Reads boxes in the order of the attributes.
template <typename T>
class Reader {
 public:
  Reader(TensorView<const T> boxes, std::int64_t count, const char* format, List<std::int64_t> coordinates,
         std::int64_t axis)
      : data_(boxes.data), center_(equal(format, "center")) {
    const std::int64_t along = axis < 0 ? axis + 2 : axis;
    KERNEL_CHECK(coordinates.size() == 4, "nms: coordinates must be 4 numbers, got ", coordinates.size());
    std::int64_t seen = 0;
    for (const std::int64_t place : coordinates) seen |= std::int64_t{1} << place;  // each is declared as 0 to 3
    KERNEL_CHECK(seen == 0b1111, "nms: coordinates must hold each of 0, 1, 2 and 3 once, got ", coordinates[0], ", ",
                 coordinates[1], ", ", coordinates[2], ", ", coordinates[3]);
    step_ = along == 1 ? 4 : 1;
    for (int k = 0; k < 4; ++k) offsets_[k] = coordinates[k] * (along == 1 ? 1 : count);
  }

  Box operator[](std::int64_t index) const {
    double n[4];
    for (int k = 0; k < 4; ++k) n[k] = static_cast<double>(data_[index * step_ + offsets_[k]]);
    return center_ ? from_corners(n[0] - n[2] / 2, n[1] - n[3] / 2, n[0] + n[2] / 2, n[1] + n[3] / 2)
                   : from_corners(n[0], n[1], n[2], n[3]);
  }

 private:
  const T* data_;
  bool center_;
  std::int64_t step_;
  std::int64_t offsets_[4];
};

/// Adds to `chosen` what stays of `sorted`.
inline void choose(const Candidates& sorted, OptionalView<const std::int64_t> classes, double threshold,
                   std::int64_t max_boxes, Candidates& chosen) {
  for (const Candidate& candidate : sorted) {
    if (max_boxes > 0 && chosen.size() == max_boxes) return;
    bool suppressed = false;
    for (const Candidate& rival : chosen) {
      if (classes && classes->data[rival.index] != classes->data[candidate.index]) continue;
      suppressed = overlap(rival.box, candidate.box, threshold);
      if (suppressed) break;
    }
    if (!suppressed) chosen.add(candidate);
  }
}

template <typename T>
void nms(TensorView<const T> boxes, TensorView<const T> scores, OptionalView<const std::int64_t> classes,
         OptionalView<const bool> valid, List<TensorView<const T>> factors, float iou_threshold, float score_threshold,
         std::int64_t max_boxes, const char* format, List<std::int64_t> coordinates, std::int64_t axis,
         NewTensor<std::int64_t> indices, NewTensor<T> selected, TensorView<bool> kept) {
  const Reader<T> reader(boxes, scores.numel(), format, coordinates, axis);
  Candidates candidates(scores.numel());
  for (std::int64_t i = 0; i < scores.numel(); ++i) {
    double score = static_cast<double>(scores.data[i]);
    for (const TensorView<const T>& factor : factors) score *= static_cast<double>(factor.data[i]);
    if (score > static_cast<double>(score_threshold) && (!valid || valid->data[i])) {
      candidates.add({score, i, reader[i]});
    }
  }
  candidates.sort();
  Candidates chosen(candidates.size());
  choose(candidates, classes, static_cast<double>(iou_threshold), max_boxes, chosen);

  const std::int64_t sizes[] = {chosen.size()};
  const TensorView<std::int64_t> index = indices.make({sizes, 1});
  const TensorView<T> score = selected.make({sizes, 1});
  for (std::int64_t i = 0; i < kept.numel(); ++i) kept.data[i] = false;
  std::int64_t k = 0;
  for (const Candidate& candidate : chosen) {
    index.data[k] = candidate.index;
    score.data[k] = static_cast<T>(candidate.score);
    kept.data[candidate.index] = true;
    ++k;
  }
}

}  // namespace opmatrix::nms
