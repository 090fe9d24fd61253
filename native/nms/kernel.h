// Non-maximum suppression: of boxes that overlap much, the one with the highest score is kept.
//
// A box is used where `valid` is true (all are without it) and where its score, times every factor, is greater than
// score_threshold. From the highest score down, equal scores by index: a box is kept, unless one that was kept before,
// of the same class (all are of one class without `classes`), overlaps it with
//   area of the intersection > iou_threshold * area of the union
//
// Shapes   boxes (N, 4) with axis -1 or 1, (4, N) with axis -2 or 0; all others (N,). indices and selected hold the M
//          kept boxes, the highest score first; kept (N,). At most max_boxes are kept, with 0 any number. selected and
//          kept are optional.
// Boxes    "corners": two opposite corners x, y, x, y. "center": center and size x, y, w, h. coordinates[k] is where
//          along the axis the k-th of these four is: (1, 0, 3, 2) for y, x, y, x.
// Numbers  Scores and areas are computed in double.
// NaN      A score of NaN is greater than nothing; a box with NaN overlaps nothing.
// Aliasing No output overlaps an input.
#pragma once

#include <cstdint>

#include "opmatrix/check.h"
#include "opmatrix/half.h"
#include "opmatrix/list.h"
#include "opmatrix/simd.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::nms {

struct Box {
  double left, top, right, bottom;
};

/// A box, and what it is sorted by.
struct Candidate {
  std::uint64_t key;
  std::int64_t index;
};

/// Returns the key of a score from its bits, less for a higher score, or the bits from the key.
inline std::uint64_t flipped(std::uint64_t bits) {
  return bits >> 63 != 0 ? bits : bits ^ 0x7FFF'FFFF'FFFF'FFFF;
}

/// An array that frees itself, and holds a few elements without allocating. std::vector takes longer to compile than
/// the rest of this file.
template <typename T>
class Array {
 public:
  explicit Array(std::int64_t size) : data_(size <= kFew ? few_ : new T[static_cast<std::size_t>(size)]) {}
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    if (data_ != few_) delete[] data_;
  }

  operator T*() const { return data_; }

 private:
  static constexpr std::int64_t kFew = 128;  // boxes to sort; as numbers of Columns, 17 boxes or more

  T few_[kFew];
  T* data_;
};

/// Sorts by key, equal keys in the order that they have, and returns where the result is: `items` or `spare`, which is
/// as long. A few are put in their places one by one; of many, a few bits of the keys are sorted after the other, the
/// lowest first.
inline Candidate* sort(Candidate* items, Candidate* spare, std::int64_t count) {
  if (count <= 64) {
    for (std::int64_t i = 1; i < count; ++i) {
      const Candidate item = items[i];
      std::int64_t place = i;
      for (; place > 0 && items[place - 1].key > item.key; --place) items[place] = items[place - 1];
      items[place] = item;
    }
    return items;
  }
  constexpr int kBits = 5;
  constexpr std::uint64_t kMask = (1 << kBits) - 1;
  std::uint64_t different = 0;
  for (std::int64_t i = 1; i < count; ++i) different |= items[i].key ^ items[0].key;
  for (int shift = 0; shift < 64; shift += kBits) {
    if ((different >> shift & kMask) == 0) continue;
    std::int64_t places[1 << kBits] = {};  // at first, how many keys have these bits
    for (std::int64_t i = 0; i < count; ++i) ++places[items[i].key >> shift & kMask];
    std::int64_t begin = 0;
    for (std::int64_t& place : places) {
      const std::int64_t size = place;
      place = begin;
      begin += size;
    }
    for (std::int64_t i = 0; i < count; ++i) spare[places[items[i].key >> shift & kMask]++] = items[i];
    Candidate* const sorted = spare;
    spare = items;
    items = sorted;
  }
  return items;
}

inline Box from_corners(double x, double y, double other_x, double other_y) {
  // A NaN in one of two makes the area NaN, whichever of them it is.
  return {x < other_x ? x : other_x, y < other_y ? y : other_y, x < other_x ? other_x : x, y < other_y ? other_y : y};
}

/// Boxes in columns, so that a vector holds the same number of several boxes.
class Columns {
 public:
  explicit Columns(std::int64_t room) : step_(room + kLanes), data_(5 * step_) {}

  std::int64_t size() const { return count_; }
  void clear() { count_ = 0; }

  void add(const Box& box) {
    // The lanes that are left have an area of NaN, so that they overlap nothing.
    if (count_ % kLanes == 0) simd::store(column(4) + count_, simd::broadcast(__builtin_nan("")));
    const double numbers[] = {box.left, box.top, box.right, box.bottom, area(box)};
    for (int k = 0; k < 5; ++k) column(k)[count_] = numbers[k];
    ++count_;
  }

  /// Whether one of the boxes overlaps `box` by more than `threshold` of what both cover together; a NaN compares
  /// false.
  bool overlap(const Box& box, double threshold) const {
    using simd::broadcast;
    using simd::load;
    using simd::max;
    using simd::min;
    const auto left = broadcast(box.left), top = broadcast(box.top);
    const auto right = broadcast(box.right), bottom = broadcast(box.bottom);
    const double covered = area(box);
    for (std::int64_t i = 0; i < count_; i += kLanes) {
      const auto width = min(load<double>(column(2) + i), right) - max(load<double>(column(0) + i), left);
      const auto height = min(load<double>(column(3) + i), bottom) - max(load<double>(column(1) + i), top);
      const auto shared = ((width > 0) & (height > 0)) ? width * height : broadcast(0.0);
      if (simd::any(shared > threshold * (load<double>(column(4) + i) + covered - shared))) return true;
    }
    return false;
  }

 private:
  static constexpr int kLanes = simd::kLanes<double>;

  static double area(const Box& box) { return (box.right - box.left) * (box.bottom - box.top); }
  double* column(int k) const { return data_ + k * step_; }

  std::int64_t step_;
  Array<double> data_;
  std::int64_t count_ = 0;
};

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

/// Marks in `kept` what stays of candidates of one class, at most max_boxes of them, and returns how many these are.
template <typename T>
std::int64_t keep(const Candidate* begin, const Candidate* end, const Reader<T>& reader, double threshold,
                  std::int64_t max_boxes, Columns& columns, bool* kept) {
  columns.clear();
  for (const Candidate* candidate = begin; candidate != end; ++candidate) {
    if (max_boxes > 0 && columns.size() == max_boxes) break;
    const Box box = reader[candidate->index];
    if (columns.overlap(box, threshold)) continue;
    columns.add(box);
    kept[candidate->index] = true;
  }
  return columns.size();
}

template <typename T>
void nms(TensorView<const T> boxes, TensorView<const T> scores, OptionalView<const std::int64_t> classes,
         OptionalView<const bool> valid, List<TensorView<const T>> factors, float iou_threshold, float score_threshold,
         std::int64_t max_boxes, const char* format, List<std::int64_t> coordinates, std::int64_t axis,
         NewTensor<std::int64_t> indices, NewTensor<T> selected, OptionalView<bool> kept) {
  const std::int64_t count = scores.numel();
  Array<bool> own(kept ? 0 : count);
  bool* const marks = kept ? kept->data : own;  // which of the boxes stay
  const Reader<T> reader(boxes, count, format, coordinates, axis);
  Array<Candidate> candidates(count);
  std::int64_t size = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    double score = static_cast<double>(scores.data[i]);
    for (const TensorView<const T>& factor : factors) score *= static_cast<double>(factor.data[i]);
    if (score > static_cast<double>(score_threshold) && (!valid || valid->data[i]))
      candidates[size++] = {flipped(__builtin_bit_cast(std::uint64_t, score + 0.0)), i};  // -0.0 + 0.0 is 0.0
    marks[i] = false;
  }
  Array<Candidate> spare(size);
  const Candidate* const by_score = sort(candidates, spare, size);

  Columns columns(size);
  const auto threshold = static_cast<double>(iou_threshold);
  std::int64_t found = 0;
  if (classes) {
    Array<Candidate> grouped(size);
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t index = by_score[i].index;
      grouped[i] = {static_cast<std::uint64_t>(classes->data[index]), index};
    }
    const Candidate* const by_class = sort(grouped, by_score == spare ? candidates : spare, size);
    for (std::int64_t begin = 0, end = 0; begin < size; begin = end) {
      while (end < size && by_class[end].key == by_class[begin].key) ++end;
      found += keep(by_class + begin, by_class + end, reader, threshold, max_boxes, columns, marks);
    }
  } else {
    found = keep(by_score, by_score + size, reader, threshold, max_boxes, columns, marks);
  }

  const std::int64_t sizes[] = {max_boxes > 0 && found > max_boxes ? max_boxes : found};
  const TensorView<std::int64_t> index = indices.make({sizes, 1});
  TensorView<T> score;
  if (selected.wanted()) score = selected.make({sizes, 1});
  using Number = double;  // doit mutate cannot read a keyword as an argument
  std::int64_t k = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t box = by_score[i].index;
    if (!marks[box]) continue;
    if (k == sizes[0]) {  // all classes together have more
      marks[box] = false;
      continue;
    }
    index.data[k] = box;
    if (selected.wanted()) score.data[k] = static_cast<T>(__builtin_bit_cast(Number, flipped(by_score[i].key)));
    ++k;
  }
}

}  // namespace opmatrix::nms
