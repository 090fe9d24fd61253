// hands[p][i] = pile[i * players + p], as many as each player gets; turned[i] = pile[N - 1 - i].
#pragma once

#include <cstdint>

#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::deal {

template <typename T>
void deal(TensorView<const T> pile, std::int64_t players, TensorView<T> turned, List<TensorView<T>> hands) {
  for (std::int64_t i = 0; i < pile.numel(); ++i) turned.data[i] = pile.data[pile.numel() - 1 - i];
  for (std::int64_t p = 0; p < hands.size(); ++p) {
    for (std::int64_t i = 0; i < hands[p].numel(); ++i) hands[p].data[i] = pile.data[i * players + p];
  }
}

}  // namespace opmatrix::deal
