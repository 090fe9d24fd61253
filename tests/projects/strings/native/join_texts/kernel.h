// Joins strings at the same place: prefix + first + separator + other + ...
#pragma once

#include <string>

#include "opmatrix/list.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::join_texts {

inline void join_texts(TensorView<const std::string> first, OptionalView<const std::string> prefix,
                       List<TensorView<const std::string>> others, const char* separator,
                       TensorView<std::string> joined) {
  parallel_for(0, first.numel(), 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::string& text = joined.data[i];
      if (prefix) text = prefix->data[0];
      text += first.data[i];
      for (const auto& other : others) text.append(separator).append(other.data[i]);
    }
  });
}

}  // namespace opmatrix::join_texts
