// For declarations with lists of strings, in torch.
#pragma once

#include "texts.h"
#include "torch_kinds.h"

namespace opmatrix::torch {

/// Copies a list of strings.
inline Texts to_texts(const char* op, Value value) {
  const StackList list(op, std::move(value));
  Texts texts(list.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    with_text(op, list[i], [&](const char* text, std::size_t length) { texts.set(i, text, length); });
  }
  return texts;
}

}  // namespace opmatrix::torch
