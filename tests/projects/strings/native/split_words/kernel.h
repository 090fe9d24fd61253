// Splits each string at spaces.
#pragma once

#include <string>
#include <vector>

#include "opmatrix/tensor_view.h"

namespace opmatrix::split_words {

inline std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find(' ', begin) == std::string::npos ? text.size() : text.find(' ', begin);
    if (end > begin) found.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

inline void split_words(TensorView<const std::string> text, TensorView<const std::int64_t> /*axes*/,
                        NewTensor<std::string> words, NewTensor<std::int64_t> places, NewTensor<std::string> rest) {
  std::vector<std::string> all, without;
  std::vector<std::int64_t> at;
  for (std::int64_t i = 0; i < text.numel(); ++i) {
    const std::vector<std::string> found = words_of(text.data[i]);
    if (found.empty()) without.push_back(text.data[i]);
    for (std::size_t n = 0; n < found.size(); ++n) {
      all.push_back(found[n]);
      at.push_back(i);
      at.push_back(static_cast<std::int64_t>(n));
    }
  }
  const auto count = static_cast<std::int64_t>(all.size());
  const std::int64_t pairs[] = {count, 2}, empty[] = {static_cast<std::int64_t>(without.size())};
  const auto made = words.make({pairs, 1});
  const auto made_places = places.make({pairs, 2});
  for (std::size_t i = 0; i < all.size(); ++i) made.data[i] = all[i];
  for (std::size_t i = 0; i < at.size(); ++i) made_places.data[i] = at[i];
  if (!rest.wanted()) return;
  const auto made_rest = rest.make({empty, 1});
  for (std::size_t i = 0; i < without.size(); ++i) made_rest.data[i] = without[i];
}

}  // namespace opmatrix::split_words
