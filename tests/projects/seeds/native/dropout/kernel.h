// y[i] = 0 where number i of Philox4x64-10 (Salmon et al., 2011) for the key `seed` is below p, else x[i] / (1 - p).
#pragma once

#include <array>
#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::dropout {

// Four numbers of 64 bits, which follow from a key and a counter.
inline std::array<std::uint64_t, 4> philox(std::uint64_t key, std::uint64_t counter) {
  std::array<std::uint64_t, 4> c{counter, 0, 0, 0};
  std::uint64_t k0 = key, k1 = 0;
  for (int round = 0; round < 10; ++round) {
    const unsigned __int128 a = static_cast<unsigned __int128>(0xD2E7470EE14C6C93u) * c[0];
    const unsigned __int128 b = static_cast<unsigned __int128>(0xCA5A826395121157u) * c[2];
    c = {static_cast<std::uint64_t>(b >> 64) ^ c[1] ^ k0, static_cast<std::uint64_t>(b),
         static_cast<std::uint64_t>(a >> 64) ^ c[3] ^ k1, static_cast<std::uint64_t>(a)};
    k0 += 0x9E3779B97F4A7C15u;
    k1 += 0xBB67AE8584CAA73Bu;
  }
  return c;
}

template <typename T>
void dropout(TensorView<const T> x, std::int64_t seed, float p, TensorView<T> y) {
  std::array<std::uint64_t, 4> drawn{};
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (i % 4 == 0) drawn = philox(std::uint64_t(seed), std::uint64_t(i / 4 + 1));
    const double number = double(drawn[std::size_t(i % 4)] >> 11) * 0x1p-53;
    y.data[i] = number < double(p) ? T(0) : x.data[i] / T(1 - double(p));
  }
}

}  // namespace opmatrix::dropout
