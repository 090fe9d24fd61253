// Each element plus the lengths and the counts of the strings: tests/projects/listed/ops/tag_count/reference.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::tag_count {

template <typename T>
void tag_count(TensorView<const T> x, List<std::string_view> tags, std::optional<List<std::string_view>> more,
               float factor, TensorView<T> y) {
  std::int64_t added = 10 * tags.size();
  for (const std::string_view tag : tags) added += static_cast<std::int64_t>(tag.size());
  // Functions of C take no null pointer, also for no byte.
  for (const std::string_view tag : tags) added += tag.data() ? 0 : 1000;
  if (more) {
    added += 100;
    for (const std::string_view tag : *more) added += 2 * static_cast<std::int64_t>(tag.size()) + 1;
  }
  for (std::int64_t i = 0; i < x.numel(); ++i) y.data[i] = x.data[i] * static_cast<T>(factor) + static_cast<T>(added);
}

}  // namespace opmatrix::tag_count
