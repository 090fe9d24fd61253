// The places of strings in a list: tests/projects/listed/ops/label_ids/reference.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::label_ids {

inline void label_ids(TensorView<const std::string> texts, List<std::string_view> labels,
                      List<std::string_view> counted, TensorView<std::int64_t> ids, TensorView<std::int64_t> sizes) {
  for (std::int64_t i = 0; i < texts.numel(); ++i) {
    std::int64_t id = 0;
    while (id < labels.size() && labels[id] != texts.data[i]) ++id;
    ids.data[i] = id < labels.size() ? id : -1;
    sizes.data[i] = 0;
    for (const std::string_view one : counted) {
      if (one == texts.data[i]) sizes.data[i] += static_cast<std::int64_t>(one.size()) + 1;
    }
  }
}

}  // namespace opmatrix::label_ids
