// Splits strings at each of some characters.
//
// Shapes   input (N,), delimiter (1,), skip_empty (1,); P pieces: indices (P, 2), values (P,), shape (2,).
// Pieces   In the order of the strings. An empty string has none. With an empty delimiter each character is a piece.
// Strings  Of any bytes. The delimiter must be ASCII, and so must the strings where it is empty: a byte of another
//          character is no string of ONNX.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "opmatrix/check.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::string_split {

inline bool is_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

/// Where each piece of a string begins, and how long it is.
inline std::vector<std::pair<std::size_t, std::size_t>> pieces(const std::string& text, const std::string& delimiter,
                                                               bool skip_empty) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  if (text.empty()) return found;
  if (delimiter.empty()) {
    KERNEL_CHECK(is_ascii(text), "string_split: without a delimiter, input must be ASCII");
    for (std::size_t i = 0; i < text.size(); ++i) found.emplace_back(i, 1);
    return found;
  }
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(delimiter, begin), text.size());
    if (!skip_empty || end > begin) found.emplace_back(begin, end - begin);
    begin = end + 1;
  }
  return found;
}

inline void string_split(TensorView<const std::string> input, TensorView<const std::string> delimiter,
                         TensorView<const bool> skip_empty, NewTensor<std::int64_t> indices,
                         NewTensor<std::string> values, NewTensor<std::int64_t> shape) {
  KERNEL_CHECK(is_ascii(delimiter.data[0]), "string_split: delimiter must be ASCII");
  std::vector<std::string> found;
  std::vector<std::int64_t> places;
  std::int64_t most = 0;
  for (std::int64_t row = 0; row < input.numel(); ++row) {
    std::int64_t column = 0;
    for (const auto& [begin, length] : pieces(input.data[row], delimiter.data[0], skip_empty.data[0])) {
      found.push_back(input.data[row].substr(begin, length));
      places.insert(places.end(), {row, column++});
    }
    most = std::max(most, column);
  }
  const std::int64_t sizes[] = {static_cast<std::int64_t>(found.size()), 2};
  std::copy(places.begin(), places.end(), indices.make({sizes, 2}).data);
  std::copy(found.begin(), found.end(), values.make({sizes, 1}).data);
  const auto made = shape.make({sizes + 1, 1});
  made.data[0] = input.numel();
  made.data[1] = most;
}

}  // namespace opmatrix::string_split
