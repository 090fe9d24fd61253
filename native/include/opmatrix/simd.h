// Vectors of numbers, as long as a register of the processor for which the kernel is compiled. They are vectors of the
// compiler, not classes, and have the operators of C++: `+ - * / & | ^ << >> < <= == !=`, `v[i]`. A kernel whose
// declaration has `cpu_levels=True` is compiled for x86-64-v2, v3 and v4, and runs at the highest level that the
// processor has. A kernel without it is compiled once, for every x86-64. simd_math.h has exp, log, erf and tanh.
#pragma once

#include <cstdint>

#include "opmatrix/half.h"

namespace opmatrix::simd {

/// The bytes of a register: 16, with x86-64-v3 32, with v4 64.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
inline constexpr int kBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kBytes = 32;
#else
inline constexpr int kBytes = 16;
#endif

/// The lanes of a register: how many T it holds.
template <typename T>
inline constexpr int kLanes = kBytes / static_cast<int>(sizeof(T));

namespace detail {

template <typename T>
inline constexpr bool kIsLane = !__is_class(T) && !__is_enum(T);
template <>
inline constexpr bool kIsLane<bool> = false;

template <typename T, int N>
constexpr int size_of_vector() {
  static_assert(kIsLane<T>, "simd: lanes are float, double or integers; load converts other dtypes of memory");
  static_assert(N > 0 && (N & (N - 1)) == 0, "simd: the number of lanes is a power of 2");
  return N * static_cast<int>(sizeof(T));
}

}  // namespace detail

/// N numbers of type T: float, double or an integer. Of two vectors, an operator takes the lanes with the same index;
/// of a vector and a number, each lane and the number. Keep the default of N, or a lower one: GCC splits a vector that
/// is wider than a register into many slow instructions. N is a power of 2. Half, BFloat16 and the smaller types are
/// types of memory alone: `load` and `store` convert them.
///
///     const auto step = simd::broadcast<float>(0.5F);
///     std::int64_t i = 0;
///     for (; i + simd::kLanes<float> <= count; i += simd::kLanes<float>)
///       simd::store(y + i, simd::load<float>(x + i) * step + 1.0F);
///     if (i < count)
///       simd::store_part(y + i, simd::load_part<float>(x + i, count - i) * step + 1.0F, count - i);
template <typename T, int N = kLanes<T>>
using Vec [[gnu::vector_size(detail::size_of_vector<T, N>())]] = T;

namespace detail {

template <typename T>
struct Plain {
  using type = T;
};
template <typename T>
struct Plain<T&> {
  using type = T;
};
template <typename T>
struct Plain<T&&> {
  using type = T;
};

/// The type of a vector's lanes, and their number.
template <typename V>
using Lane = typename Plain<decltype(V{}[0])>::type;
template <typename V>
inline constexpr int kCount = static_cast<int>(sizeof(V) / sizeof(Lane<V>));

template <typename A, typename B>
inline constexpr bool kSame = false;
template <typename A>
inline constexpr bool kSame<A, A> = true;

template <typename T>
inline constexpr bool kFloating = kSame<T, float> || kSame<T, double>;

/// The integers of a size.
template <int kSize>
struct Whole;
template <>
struct Whole<1> {
  using type = std::int8_t;
  using positive = std::uint8_t;
};
template <>
struct Whole<2> {
  using type = std::int16_t;
  using positive = std::uint16_t;
};
template <>
struct Whole<4> {
  using type = std::int32_t;
  using positive = std::uint32_t;
};
template <>
struct Whole<8> {
  using type = std::int64_t;
  using positive = std::uint64_t;
};
template <typename T>
using Int = typename Whole<static_cast<int>(sizeof(T))>::type;
template <typename T>
using Positive = typename Whole<static_cast<int>(sizeof(T))>::positive;

/// The type of the elements of memory in a register: void for a type whose elements are converted one at a time.
template <typename S, typename = void>
struct Stored {
  using type = S;
};
template <typename S>
struct Stored<S, decltype(static_cast<void>(S::kBits))> {
  using type = void;
};
template <>
struct Stored<Half> {
  using type = std::uint16_t;
};
template <>
struct Stored<BFloat16> {
  using type = std::uint16_t;
};
template <>
struct Stored<bool> {
  using type = std::uint8_t;
};
template <typename S>
using Raw = typename Stored<S>::type;

template <typename T, T... kIndex>
struct Indices {};
// The compilers differ in names, and in the types of the masks of AVX-512: all lanes.
#if defined(__clang__)
template <int N>
using UpTo = __make_integer_seq<Indices, int, N>;
inline constexpr unsigned char kAll8 = 0xFF;
inline constexpr unsigned short kAll16 = 0xFFFF;
using Mask16 = unsigned short;
template <int kSize>
using Memory = Vec<char, kSize>;
#else
inline constexpr char kAll8 = -1;
inline constexpr short kAll16 = -1;
using Mask16 = short;
template <int kSize>
using Memory = char;
template <int N>
using UpTo = Indices<int, __integer_pack(N)...>;
#endif

template <typename T, int N>
struct Table {
  T at[N];
  constexpr Table() : at{} {
    for (int i = 0; i < N; ++i) at[i] = static_cast<T>(i);
  }
};
template <typename T, int N>
inline constexpr Table<T, N> kTable;

template <typename V, int... I>
[[gnu::always_inline]] inline auto lower(V v, Indices<int, I...>) {
  return __builtin_shufflevector(v, v, I...);
}
template <typename V, int... I>
[[gnu::always_inline]] inline auto upper(V v, Indices<int, I...>) {
  return __builtin_shufflevector(v, v, (I + kCount<V> / 2)...);
}
template <typename V, int... I>
[[gnu::always_inline]] inline auto joined(V low, V high, Indices<int, I...>) {
  return __builtin_shufflevector(low, high, I...);
}
template <int kBy, typename V, int... I>
[[gnu::always_inline]] inline V rotated(V v, Indices<int, I...>) {
  return __builtin_shufflevector(v, v, (I ^ kBy)...);
}

/// The halves of a vector, and a vector of halves.
template <typename V>
[[gnu::always_inline]] inline auto lower(V v) {
  return lower(v, UpTo<kCount<V> / 2>{});
}
template <typename V>
[[gnu::always_inline]] inline auto upper(V v) {
  return upper(v, UpTo<kCount<V> / 2>{});
}
template <typename V>
[[gnu::always_inline]] inline auto joined(V low, V high) {
  return joined(low, high, UpTo<2 * kCount<V>>{});
}

template <typename V>
[[gnu::always_inline]] inline V load_all(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

/// Copies bytes, fewer than 2 * kPiece, a multiple of kLeast, in pieces of kPiece, kPiece / 2, ... kLeast bytes.
template <int kPiece, int kLeast>
[[gnu::always_inline]] inline void copy_pieces(char* to, const char* from, int bytes) {
  if (bytes & kPiece) {
    __builtin_memcpy(to, from, kPiece);
    to += kPiece;
    from += kPiece;
  }
  if constexpr (kPiece > kLeast) copy_pieces<kPiece / 2, kLeast>(to, from, bytes);
}

/// The first bytes, fewer than 8, without a loop and without a buffer: a load of several stores waits for them.
[[gnu::always_inline]] inline std::uint64_t first_bytes(const char* p, int bytes) {
  if (bytes >= 4) {
    const std::uint64_t last = load_all<std::uint32_t>(p + bytes - 4);
    return load_all<std::uint32_t>(p) | last << 8 * (bytes - 4);
  }
  if (bytes >= 2) {
    const std::uint64_t last = load_all<std::uint16_t>(p + bytes - 2);
    return load_all<std::uint16_t>(p) | last << 8 * (bytes - 2);
  }
  return bytes == 1 ? load_all<std::uint8_t>(p) : 0;
}

/// Stores a vector past the cache, at a multiple of its size; one of another size than a register as usual.
template <typename V>
[[gnu::always_inline]] inline void stream_raw(void* p, V v) {
#if defined(__clang__)
  __builtin_nontemporal_store(v, static_cast<V*>(p));
#else
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) return __builtin_ia32_movntps512(static_cast<float*>(p), (Vec<float, 16>)v);
#endif
#if defined(__AVX__)
  if constexpr (sizeof(V) == 32) return __builtin_ia32_movntps256(static_cast<float*>(p), (Vec<float, 8>)v);
#endif
#if defined(__SSE2__)
  if constexpr (sizeof(V) == 16) return __builtin_ia32_movntps(static_cast<float*>(p), (Vec<float, 4>)v);
#endif
  __builtin_memcpy(p, &v, sizeof v);
#endif
}

/// The first `count` elements, fewer than all, and 0.
template <typename V>
[[gnu::always_inline]] inline V load_first(const void* from, int count) {
  constexpr int kSize = static_cast<int>(sizeof(Lane<V>));
  const auto* p = static_cast<const char*>(from);
  const int bytes = count * kSize;
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const std::uint64_t mask = (std::uint64_t{1} << bytes) - 1;
  if constexpr (sizeof(V) == 64)
    return (V)__builtin_ia32_loaddquqi512_mask((const Memory<64>*)p, Vec<char, 64>{}, mask);
  if constexpr (sizeof(V) == 32)
    return (V)__builtin_ia32_loaddquqi256_mask((const Memory<32>*)p, Vec<char, 32>{}, static_cast<unsigned>(mask));
  if constexpr (sizeof(V) == 16)
    return (V)__builtin_ia32_loaddquqi128_mask((const Memory<16>*)p, Vec<char, 16>{}, static_cast<Mask16>(mask));
#elif defined(__AVX2__)
  if constexpr (sizeof(V) == 32 && kSize >= 4)
    return (V)__builtin_ia32_maskloadd256((const Vec<int, 8>*)p, load_all<Vec<int, 8>>(kTable<int, 8>.at) < bytes / 4);
  if constexpr (sizeof(V) == 16 && kSize >= 4)
    return (V)__builtin_ia32_maskloadd((const Vec<int, 4>*)p, load_all<Vec<int, 4>>(kTable<int, 4>.at) < bytes / 4);
#endif
  if constexpr (sizeof(V) > 16) {
    using H = decltype(lower(V{}));
    return count < kCount<H> ? joined(load_first<H>(p, count), H{})
                             : joined(load_all<H>(p), load_first<H>(p + sizeof(H), count - kCount<H>));
  } else if constexpr (sizeof(V) == 16) {
    if (bytes < 8) return (V)Vec<std::uint64_t, 2>{first_bytes(p, bytes), 0};
    const auto last = load_all<std::uint64_t>(p + bytes - 8) >> 8 >> 8 * (15 - bytes);
    return (V)Vec<std::uint64_t, 2>{load_all<std::uint64_t>(p), last};
  } else {
    const std::uint64_t found = first_bytes(p, bytes);
    return load_all<V>(&found);
  }
}

/// The first `count` elements, fewer than all.
template <typename V>
[[gnu::always_inline]] inline void store_first(void* p, V v, int count) {
  constexpr int kSize = static_cast<int>(sizeof(Lane<V>));
  copy_pieces<static_cast<int>(sizeof(V)) / 2, kSize>(static_cast<char*>(p), reinterpret_cast<const char*>(&v),
                                                      count * kSize);
}

/// A vector in a whole register, of which the other lanes are 0.
template <typename V>
[[gnu::always_inline]] inline auto in_register(V v) {
  using I = typename Whole<static_cast<int>(sizeof(V))>::type;
  return (Vec<Lane<V>, 16 / static_cast<int>(sizeof(Lane<V>))>)Vec<I, 16 / static_cast<int>(sizeof(V))>{
      __builtin_bit_cast(I, v)};
}
[[gnu::always_inline]] inline auto in_register(auto v)
  requires(sizeof(v) >= 16)
{
  return v;
}

/// The lanes as type U. GCC 12 splits what makes a vector wider into halves, or into single numbers.
template <typename U, typename V>
[[gnu::always_inline]] inline Vec<U, kCount<V>> converted(V v) {
  using T = Lane<V>;
  constexpr int N = kCount<V>;
  if constexpr (kSame<T, U>) {
    return v;
  } else if constexpr ((sizeof(T) <= 2 && kFloating<U>) || (kFloating<T> && sizeof(U) <= 2)) {
    return converted<U>(converted<std::int32_t>(v));
  } else if constexpr (sizeof(T) == 4 && sizeof(U) == 1) {
    return converted<U>(converted<std::uint16_t>(v));
  } else {
#if !defined(__clang__) && defined(__SSE4_1__)
    constexpr int kSize = N * static_cast<int>(sizeof(U));
    constexpr bool kPositive = T(-1) > T(0);
    if constexpr (kSize > kBytes && sizeof(U) > sizeof(T)) {
      return joined(converted<U>(lower(v)), converted<U>(upper(v)));
    } else if constexpr (kSame<U, double> && (kSame<T, float> || kSame<T, std::int32_t>)) {
      constexpr bool kFloat = kSame<T, float>;
#if defined(__AVX512F__)
      if constexpr (kSize == 64 && kFloat) return __builtin_ia32_cvtps2pd512_mask(v, Vec<U, 8>{}, kAll8, 4);
      if constexpr (kSize == 64 && !kFloat) return __builtin_ia32_cvtdq2pd512_mask(v, Vec<U, 8>{}, kAll8);
#endif
#if defined(__AVX__)
      if constexpr (kSize == 32 && kFloat) return __builtin_ia32_cvtps2pd256(v);
      if constexpr (kSize == 32 && !kFloat) return __builtin_ia32_cvtdq2pd256(v);
#endif
      if constexpr (kSize == 16 && kFloat) return __builtin_ia32_cvtps2pd(in_register(v));
      if constexpr (kSize == 16 && !kFloat) return __builtin_ia32_cvtdq2pd(in_register(v));
    } else if constexpr (!kFloating<U> && sizeof(U) == 4 && sizeof(T) <= 2) {
      constexpr bool kByte = sizeof(T) == 1;
      using Chars = Vec<char, 16>;
      using Shorts = Vec<short, 8>;
#if defined(__AVX512F__)
      using Shorts16 = Vec<short, 16>;
      using To = Vec<int, 16>;
      if constexpr (kSize == 64 && kByte && kPositive)
        return (Vec<U, N>)__builtin_ia32_pmovzxbd512_mask((Chars)v, To{}, kAll16);
      if constexpr (kSize == 64 && kByte && !kPositive)
        return (Vec<U, N>)__builtin_ia32_pmovsxbd512_mask((Chars)v, To{}, kAll16);
      if constexpr (kSize == 64 && !kByte && kPositive)
        return (Vec<U, N>)__builtin_ia32_pmovzxwd512_mask((Shorts16)v, To{}, kAll16);
      if constexpr (kSize == 64 && !kByte && !kPositive)
        return (Vec<U, N>)__builtin_ia32_pmovsxwd512_mask((Shorts16)v, To{}, kAll16);
#endif
#if defined(__AVX2__)
      if constexpr (kSize == 32 && kByte && kPositive)
        return (Vec<U, N>)__builtin_ia32_pmovzxbd256((Chars)in_register(v));
      if constexpr (kSize == 32 && kByte && !kPositive)
        return (Vec<U, N>)__builtin_ia32_pmovsxbd256((Chars)in_register(v));
      if constexpr (kSize == 32 && !kByte && kPositive) return (Vec<U, N>)__builtin_ia32_pmovzxwd256((Shorts)v);
      if constexpr (kSize == 32 && !kByte && !kPositive) return (Vec<U, N>)__builtin_ia32_pmovsxwd256((Shorts)v);
#endif
      if constexpr (kSize == 16 && kByte && kPositive)
        return (Vec<U, N>)__builtin_ia32_pmovzxbd128((Chars)in_register(v));
      if constexpr (kSize == 16 && kByte && !kPositive)
        return (Vec<U, N>)__builtin_ia32_pmovsxbd128((Chars)in_register(v));
      if constexpr (kSize == 16 && !kByte && kPositive)
        return (Vec<U, N>)__builtin_ia32_pmovzxwd128((Shorts)in_register(v));
      if constexpr (kSize == 16 && !kByte && !kPositive)
        return (Vec<U, N>)__builtin_ia32_pmovsxwd128((Shorts)in_register(v));
    }
#endif
    return __builtin_convertvector(v, Vec<U, N>);
  }
}

/// The floats of float16.
template <int N>
[[gnu::always_inline]] inline Vec<float, N> floats_of_halves(Vec<std::uint16_t, N> half) {
  if constexpr (N > kLanes<float>)
    return joined(floats_of_halves<N / 2>(lower(half)), floats_of_halves<N / 2>(upper(half)));
#if defined(__AVX512F__)
  if constexpr (N == 16) return __builtin_ia32_vcvtph2ps512_mask((Vec<short, 16>)half, Vec<float, 16>{}, kAll16, 4);
#endif
#if defined(__F16C__)
  if constexpr (N == 8) return __builtin_ia32_vcvtph2ps256((Vec<short, 8>)half);
  if constexpr (N == 4) return __builtin_ia32_vcvtph2ps((Vec<short, 8>)in_register(half));
#endif
  using Bits = Vec<std::uint32_t, N>;
  const Bits bits = converted<std::uint32_t>(half);
  const Bits size = bits & 0x7FFFU;
  const Bits shifted = (size << 13) + 0x38000000U;
  // Computed without a subnormal float, which some threads flush to 0.
  const Bits small = (Bits)((Vec<float, N>)(size | 0x3F000000U) - 0.5F);
  const Bits large = (Vec<std::int32_t, N>)size >= 0x7C00 ? shifted + 0x38000000U : shifted;
  return (Vec<float, N>)(((bits & 0x8000U) << 16) | ((Vec<std::int32_t, N>)size < 0x400 ? small : large));
}

/// The nearest float16, ties to even.
template <int N>
[[gnu::always_inline]] inline Vec<std::uint16_t, N> halves_of_floats(Vec<float, N> v) {
  if constexpr (N > kLanes<float>) return joined(halves_of_floats<N / 2>(lower(v)), halves_of_floats<N / 2>(upper(v)));
#if defined(__AVX512F__)
  if constexpr (N == 16)
    return (Vec<std::uint16_t, 16>)__builtin_ia32_vcvtps2ph512_mask(v, 0, Vec<short, 16>{}, kAll16);
#endif
#if defined(__F16C__)
  if constexpr (N == 8) return (Vec<std::uint16_t, 8>)__builtin_ia32_vcvtps2ph256(v, 0);
  if constexpr (N == 4) return lower((Vec<std::uint16_t, 8>)__builtin_ia32_vcvtps2ph(v, 0));
#endif
  using Bits = Vec<std::uint32_t, N>;
  using Signed = Vec<std::int32_t, N>;
  const Bits bits = (Bits)v;
  const Bits size = bits & 0x7FFFFFFFU;
  const Bits nan = ((size >> 13) & 0x3FFU) | 0x7E00U;
  const Bits small = (Bits)((Vec<float, N>)size + 0.5F) - 0x3F000000U;  // the sum rounds
  const Bits nearest = (size - 0x38000000U + 0xFFFU + ((size >> 13) & 1U)) >> 13;
  const Bits large = (Signed)nearest > 0x7C00 ? Bits{} + 0x7C00U : nearest;
  const Bits finite = (Signed)size < 0x38800000 ? small : large;
  const Bits found = (Signed)size > 0x7F800000 ? nan : finite;
  return __builtin_convertvector(found | ((bits >> 16) & 0x8000U), Vec<std::uint16_t, N>);
}

/// The nearest bfloat16, ties to even, in the upper half of the bits of a float; the lower half is of no use.
template <int N>
[[gnu::always_inline]] inline Vec<std::uint32_t, N> bfloats_in_floats(Vec<float, N> v) {
  using Bits = Vec<std::uint32_t, N>;
  const Bits bits = (Bits)v;
  const Bits nearest = bits + 0x7FFFU + ((bits >> 16) & 1U);
  return v == v ? nearest : bits | 0x400000U;
}

template <int N>
[[gnu::always_inline]] inline Vec<std::uint16_t, N> bfloats_of_floats(Vec<float, N> v) {
  const auto found = bfloats_in_floats<N>(v) >> 16;
#if defined(__AVX2__)
  if constexpr (N == 8) {  // GCC does not see that the lanes fit
    using Signed = Vec<std::int32_t, 4>;
    return (Vec<std::uint16_t, 8>)__builtin_ia32_packusdw128((Signed)lower(found), (Signed)upper(found));
  }
#endif
  return converted<std::uint16_t>(found);
}

/// The doubles with as many bits as a float, the last of them set if more were cut: a type of two bytes that this is
/// then rounded to is the nearest, unless that is subnormal. See rounded_to_odd.
template <int N>
[[gnu::always_inline]] inline Vec<double, N> cut_to_odd(Vec<double, N> v) {
  using Bits = Vec<std::int64_t, N>;
  constexpr std::int64_t kCut = (std::int64_t{1} << 29) - 1;  // what a double has more than a float
  const Bits bits = (Bits)v;
  return (Vec<double, N>)((bits | ((bits & kCut) + kCut)) & ~kCut);
}

/// The nearest float16: a double that is a subnormal float is 0, however it is rounded.
template <int N>
[[gnu::always_inline]] inline Vec<std::uint16_t, N> halves_of_doubles(Vec<double, N> v) {
  return halves_of_floats<N>(converted<float>(cut_to_odd<N>(v)));
}

/// The nearest bfloat16: a subnormal one is a multiple of 2^-133, as the sum with a number of this size is.
template <int N>
[[gnu::always_inline]] inline Vec<std::uint16_t, N> bfloats_of_doubles(Vec<double, N> v) {
  using Bits = Vec<std::int64_t, N>;
  constexpr double kWhole = 0x1.8p-81;
  const Bits sign = (Bits)v & static_cast<std::int64_t>(std::uint64_t{1} << 63);
  const Vec<double, N> size = (Vec<double, N>)((Bits)v ^ sign);
  const Vec<double, N> found = size < 0x1p-126 ? (size + kWhole) - kWhole : cut_to_odd<N>(size);
  return bfloats_of_floats<N>(converted<float>((Vec<double, N>)((Bits)found | sign)));
}

}  // namespace detail

/// A vector with `value` in each lane.
template <typename T, int N = kLanes<T>>
[[gnu::always_inline]] inline Vec<T, N> broadcast(T value) {
  return value - Vec<T, N>{};
}

/// A vector of 0, 1, 2, ...
template <typename T, int N = kLanes<T>>
[[gnu::always_inline]] inline Vec<T, N> iota() {
  return detail::load_all<Vec<T, N>>(detail::kTable<T, N>.at);
}

/// The lanes as type U, as a cast of C++: integers lose a fraction, and a value that does not fit U is undefined.
template <typename U, typename V>
[[gnu::always_inline]] inline Vec<U, detail::kCount<V>> convert(V v) {
  return detail::converted<U>(v);
}

/// The lanes of `a` where the mask is set, and those of `b` where it is not. A mask is what a comparison of vectors
/// returns: integers as wide as the lanes, -1 or 0; `&`, `|` and `~` combine them.
template <typename M, typename V>
[[gnu::always_inline]] inline V select(M mask, V a, V b) {
  return mask ? a : b;
}

namespace detail {

/// Elements of memory as numbers of type T.
template <typename T, typename S, typename V>
[[gnu::always_inline]] inline Vec<T, kCount<V>> numbers(V raw) {
  constexpr int N = kCount<V>;
  if constexpr (kSame<S, Half>) {
    return convert<T>(floats_of_halves<N>(raw));
  } else if constexpr (kSame<S, BFloat16>) {
    return convert<T>((Vec<float, N>)(convert<std::uint32_t>(raw) << 16));
  } else {
    return convert<T>(raw);
  }
}

/// Numbers as elements of memory of type S.
template <typename S, typename V>
[[gnu::always_inline]] inline Vec<Raw<S>, kCount<V>> elements(V v) {
  constexpr int N = kCount<V>;
  if constexpr (kSame<S, bool>) {
    return convert<std::uint8_t>(v != V{}) & 1;
  } else if constexpr (kSame<S, Half>) {
    if constexpr (kSame<Lane<V>, float>) {
      return halves_of_floats<N>(v);
    } else {
      return halves_of_doubles<N>(convert<double>(v));
    }
  } else if constexpr (kSame<S, BFloat16>) {
    if constexpr (kSame<Lane<V>, float>) {
      return bfloats_of_floats<N>(v);
    } else {
      return bfloats_of_doubles<N>(convert<double>(v));
    }
  } else {
    return convert<S>(v);
  }
}

}  // namespace detail

/// Loads N elements of any dtype from memory, which need not be aligned, and converts them to T.
template <typename T, int N = kLanes<T>, typename S>
[[gnu::always_inline]] inline Vec<T, N> load(const S* p) {
  if constexpr (detail::kSame<detail::Raw<S>, void>) {
    Vec<T, N> v{};
    for (int i = 0; i < N; ++i) v[i] = static_cast<T>(p[i]);
    return v;
  } else {
    return detail::numbers<T, S>(detail::load_all<Vec<detail::Raw<S>, N>>(p));
  }
}

/// Loads the first `count` elements, 0 <= count < N, and reads nothing after them. The other lanes are `fill`.
template <typename T, int N = kLanes<T>, typename S>
[[gnu::always_inline]] inline Vec<T, N> load_part(const S* p, std::int64_t count, T fill = 0) {
  using I = detail::Int<T>;
  if constexpr (detail::kSame<detail::Raw<S>, void>) {
    Vec<T, N> v = broadcast<T, N>(fill);
    for (int i = 0; i < count; ++i) v[i] = static_cast<T>(p[i]);
    return v;
  } else {
    const auto raw = detail::load_first<Vec<detail::Raw<S>, N>>(p, static_cast<int>(count));
    return iota<I, N>() < static_cast<I>(count) ? detail::numbers<T, S>(raw) : broadcast<T, N>(fill);
  }
}

/// Stores all lanes as elements of any dtype in memory, which need not be aligned. Rounds once, to the nearest, ties to
/// even; whole numbers as in `convert`. In bool, 0 is false.
template <typename S, typename V>
[[gnu::always_inline]] inline void store(S* p, V v) {
  if constexpr (detail::kSame<detail::Raw<S>, void>) {
    for (int i = 0; i < detail::kCount<V>; ++i) p[i] = static_cast<S>(v[i]);
  } else {
    const auto raw = detail::elements<S>(v);
    __builtin_memcpy(static_cast<void*>(p), &raw, sizeof raw);
  }
}

/// Stores the first `count` lanes, 0 <= count < N, and writes nothing after them.
template <typename S, typename V>
[[gnu::always_inline]] inline void store_part(S* p, V v, std::int64_t count) {
  if constexpr (detail::kSame<detail::Raw<S>, void>) {
    for (int i = 0; i < count; ++i) p[i] = static_cast<S>(v[i]);
  } else {
    detail::store_first(p, detail::elements<S>(v), static_cast<int>(count));
  }
}

/// Stores as `store` does, past the cache, so that memory is not read before it is written: for outputs of float and
/// double that are larger than the cache. p is a multiple of the bytes that are stored, as one of `kBytes` is. Other
/// threads see the elements once this one has called `flush_streams`.
template <typename S, typename V>
[[gnu::always_inline]] inline void stream(S* p, V v) {
  if constexpr (detail::kSame<detail::Raw<S>, void>) {
    store(p, v);
  } else {
    detail::stream_raw(p, detail::elements<S>(v));
  }
}

/// Lets other threads see what this one has stored past the cache, before whatever it stores from here on.
inline void flush_streams() {
#if defined(__SSE2__)
  __builtin_ia32_sfence();
#endif
}

/// Two vectors of the lanes of 2 * N elements, of which each is in one lane: in which depends on the dtype.
template <typename T, int N = kLanes<T>>
struct Pair {
  /// One half of the elements.
  Vec<T, N> a;
  /// The other half.
  Vec<T, N> b;
};

/// Loads 2 * N elements, for kernels to which their order is nothing: of BFloat16 in half of the instructions of two
/// `load`. `store_pair` puts each where it was.
template <typename T, int N = kLanes<T>, typename S>
[[gnu::always_inline]] inline Pair<T, N> load_pair(const S* p) {
  if constexpr (detail::kSame<S, BFloat16> && detail::kSame<T, float>) {  // those with odd indices, and with even ones
    const auto both = detail::load_all<Vec<std::uint32_t, N>>(p);
    return {(Vec<T, N>)(both & 0xFFFF0000U), (Vec<T, N>)(both << 16)};
  } else {
    return {load<T, N>(p), load<T, N>(p + N)};
  }
}

/// Stores what `load_pair` loads from the same dtype, rounded as `store` does.
template <typename S, typename T, int N>
[[gnu::always_inline]] inline void store_pair(S* p, Pair<T, N> pair) {
  if constexpr (detail::kSame<S, BFloat16> && detail::kSame<T, float>) {
    const auto both = (detail::bfloats_in_floats<N>(pair.a) & 0xFFFF0000U) | detail::bfloats_in_floats<N>(pair.b) >> 16;
    __builtin_memcpy(static_cast<void*>(p), &both, sizeof both);
  } else {
    store(p, pair.a);
    store(p + N, pair.b);
  }
}

/// a * b + c, rounded once where the processor has such an instruction (x86-64-v3 and v4), else twice.
template <typename V>
[[gnu::always_inline]] inline V fma(V a, V b, V c) {
#if defined(__FMA__)
  using T = detail::Lane<V>;
  if constexpr (detail::kFloating<T>) {
    constexpr bool kDouble = sizeof(T) == 8;
    if constexpr (sizeof(V) > kBytes) {
      return detail::joined(fma(detail::lower(a), detail::lower(b), detail::lower(c)),
                            fma(detail::upper(a), detail::upper(b), detail::upper(c)));
    } else if constexpr (sizeof(V) == 64) {
#if defined(__AVX512F__)
      if constexpr (kDouble) return __builtin_ia32_vfmaddpd512_mask(a, b, c, detail::kAll8, 4);
      if constexpr (!kDouble) return __builtin_ia32_vfmaddps512_mask(a, b, c, detail::kAll16, 4);
#endif
    } else if constexpr (sizeof(V) == 32) {
      if constexpr (kDouble) return __builtin_ia32_vfmaddpd256(a, b, c);
      if constexpr (!kDouble) return __builtin_ia32_vfmaddps256(a, b, c);
    } else if constexpr (sizeof(V) == 16) {
      if constexpr (kDouble) return __builtin_ia32_vfmaddpd(a, b, c);
      if constexpr (!kDouble) return __builtin_ia32_vfmaddps(a, b, c);
    } else {
      for (int i = 0; i < detail::kCount<V>; ++i)
        a[i] = static_cast<T>(kDouble ? __builtin_fma(a[i], b[i], c[i]) : __builtin_fmaf(a[i], b[i], c[i]));
      return a;
    }
  }
#endif
  return a * b + c;
}

/// The lesser and the greater of two lanes; `b` where one is NaN, or both are 0. So `max(zero, x)` keeps a NaN of x,
/// and `max(x, zero)` replaces it by 0.
template <typename V>
[[gnu::always_inline]] inline V min(V a, V b) {
  return a < b ? a : b;
}
template <typename V>
[[gnu::always_inline]] inline V max(V a, V b) {
  return a > b ? a : b;
}

/// The absolute values. Of floats the sign bit is cleared, also that of a NaN. The lowest integer stays as it is.
template <typename V>
[[gnu::always_inline]] inline V abs(V v) {
  using T = detail::Lane<V>;
  if constexpr (detail::kFloating<T>) {
    using I = detail::Int<T>;
    return (V)((Vec<I, detail::kCount<V>>)v & static_cast<I>(~(std::uint64_t{1} << (8 * sizeof(T) - 1))));
  } else {
    return v < V{} ? V{} - v : v;
  }
}

namespace detail {

/// Rounds to whole numbers: kMode 8 to even, 9 down.
template <int kMode, typename V>
[[gnu::always_inline]] inline V whole(V v) {
  using T = Lane<V>;
  static_assert(kFloating<T>, "floor and round_even take vectors of float or double");
  constexpr bool kDouble = sizeof(T) == 8;
  if constexpr (sizeof(V) > kBytes) {
    return joined(whole<kMode>(lower(v)), whole<kMode>(upper(v)));
  } else if constexpr (sizeof(V) < 16) {
    return lower(whole<kMode>(in_register(v)));
  } else {
#if defined(__AVX512F__)
    if constexpr (sizeof(V) == 64 && kDouble) return __builtin_ia32_rndscalepd_mask(v, kMode, v, kAll8, 4);
    if constexpr (sizeof(V) == 64 && !kDouble) return __builtin_ia32_rndscaleps_mask(v, kMode, v, kAll16, 4);
#endif
#if defined(__AVX__)
    if constexpr (sizeof(V) == 32 && kDouble) return __builtin_ia32_roundpd256(v, kMode);
    if constexpr (sizeof(V) == 32 && !kDouble) return __builtin_ia32_roundps256(v, kMode);
#endif
#if defined(__SSE4_1__)
    if constexpr (sizeof(V) == 16 && kDouble) return __builtin_ia32_roundpd(v, kMode);
    if constexpr (sizeof(V) == 16 && !kDouble) return __builtin_ia32_roundps(v, kMode);
#else
    // From 2^23 or 2^52 on, all are whole. Below, the sum with it has no fraction.
    constexpr T kWhole = static_cast<T>(kDouble ? 4503599627370496.0 : 8388608.0);
    using Bits = Vec<Int<T>, kCount<V>>;
    const Bits size = (Bits)simd::abs(v);
    const Bits sign = (Bits)v ^ size;
    const V even = (V)((Bits)(((V)size + kWhole) - kWhole) | sign);
    const V found = kMode == 8 ? even : (V)((Bits)(even - (even > v ? V{} + 1 : V{})) | sign);
    return (V)size < kWhole ? found : v;  // a NaN stays
#endif
  }
}

}  // namespace detail

/// The square root; NaN below 0.
template <typename V>
[[gnu::always_inline]] inline V sqrt(V v) {
  using T = detail::Lane<V>;
  static_assert(detail::kFloating<T>, "sqrt takes a vector of float or double");
  constexpr bool kDouble = sizeof(T) == 8;
  if constexpr (sizeof(V) > kBytes) {
    return detail::joined(sqrt(detail::lower(v)), sqrt(detail::upper(v)));
  } else if constexpr (sizeof(V) < 16) {
    return detail::lower(sqrt(detail::in_register(v)));
  } else {
#if defined(__AVX512F__) && defined(__clang__)
    if constexpr (sizeof(V) == 64 && kDouble) return __builtin_ia32_sqrtpd512(v, 4);
    if constexpr (sizeof(V) == 64 && !kDouble) return __builtin_ia32_sqrtps512(v, 4);
#elif defined(__AVX512F__)
    if constexpr (sizeof(V) == 64 && kDouble) return __builtin_ia32_sqrtpd512_mask(v, v, detail::kAll8, 4);
    if constexpr (sizeof(V) == 64 && !kDouble) return __builtin_ia32_sqrtps512_mask(v, v, detail::kAll16, 4);
#endif
#if defined(__AVX__)
    if constexpr (sizeof(V) == 32 && kDouble) return __builtin_ia32_sqrtpd256(v);
    if constexpr (sizeof(V) == 32 && !kDouble) return __builtin_ia32_sqrtps256(v);
#endif
#if defined(__SSE2__)
    if constexpr (sizeof(V) == 16 && kDouble) return __builtin_ia32_sqrtpd(v);
    if constexpr (sizeof(V) == 16 && !kDouble) return __builtin_ia32_sqrtps(v);
#else
    for (int i = 0; i < detail::kCount<V>; ++i) v[i] = static_cast<T>(__builtin_sqrt(v[i]));
    return v;
#endif
  }
}

/// The greatest whole number that is not above a lane, and the nearest one, ties to even; -0 stays -0.
template <typename V>
[[gnu::always_inline]] inline V floor(V v) {
  return detail::whole<9>(v);
}
template <typename V>
[[gnu::always_inline]] inline V round_even(V v) {
  return detail::whole<8>(v);
}

namespace detail {

/// Combines the lanes by a function of two vectors: halves of registers first, so that the order depends on N alone.
template <typename V, typename F>
[[gnu::always_inline]] inline auto combined(V v, F f) {
  if constexpr (sizeof(V) > 16) {
    return combined(f(lower(v), upper(v)), f);
  } else {
    constexpr int N = kCount<V>;
    if constexpr (N >= 16) v = f(v, rotated<8>(v, UpTo<N>{}));
    if constexpr (N >= 8) v = f(v, rotated<4>(v, UpTo<N>{}));
    if constexpr (N >= 4) v = f(v, rotated<2>(v, UpTo<N>{}));
    if constexpr (N >= 2) v = f(v, rotated<1>(v, UpTo<N>{}));
    return v[0];
  }
}

}  // namespace detail

/// The sum of all lanes, in their type, added in pairs.
template <typename V>
[[gnu::always_inline]] inline detail::Lane<V> sum(V v) {
  return detail::combined(v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}

/// Bit i is set where lane i of a mask is set.
template <typename M>
[[gnu::always_inline]] inline std::uint64_t bits(M mask) {
  [[maybe_unused]] constexpr int kSize = static_cast<int>(sizeof(detail::Lane<M>));
  constexpr int N = detail::kCount<M>;
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
  if constexpr (sizeof(M) == 64) {
    if constexpr (kSize == 8) return static_cast<std::uint8_t>(__builtin_ia32_cvtq2mask512((Vec<long long, 8>)mask));
    if constexpr (kSize == 4) return static_cast<std::uint16_t>(__builtin_ia32_cvtd2mask512((Vec<int, 16>)mask));
    if constexpr (kSize == 2) return static_cast<std::uint32_t>(__builtin_ia32_cvtw2mask512((Vec<short, 32>)mask));
    if constexpr (kSize == 1) return __builtin_ia32_cvtb2mask512((Vec<char, 64>)mask);
  }
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(M) == 32) {
    if constexpr (kSize == 8) return static_cast<unsigned>(__builtin_ia32_movmskpd256((Vec<double, 4>)mask));
    if constexpr (kSize == 4) return static_cast<unsigned>(__builtin_ia32_movmskps256((Vec<float, 8>)mask));
    if constexpr (kSize == 1) return static_cast<unsigned>(__builtin_ia32_pmovmskb256((Vec<char, 32>)mask));
  }
#endif
  if constexpr (sizeof(M) > 16) {
    return bits(detail::lower(mask)) | bits(detail::upper(mask)) << N / 2;
  } else {
#if defined(__SSE2__)
    if constexpr (sizeof(M) == 16) {
      if constexpr (kSize == 8) return static_cast<unsigned>(__builtin_ia32_movmskpd((Vec<double, 2>)mask));
      if constexpr (kSize == 4) return static_cast<unsigned>(__builtin_ia32_movmskps((Vec<float, 4>)mask));
      if constexpr (kSize == 2) {
        const auto packed = __builtin_ia32_packsswb128((Vec<short, 8>)mask, Vec<short, 8>{});
        return static_cast<unsigned>(__builtin_ia32_pmovmskb128(packed));
      }
      if constexpr (kSize == 1) return static_cast<unsigned>(__builtin_ia32_pmovmskb128((Vec<char, 16>)mask));
    }
#endif
    std::uint64_t found = 0;
    for (int i = 0; i < N; ++i) found |= static_cast<std::uint64_t>(mask[i] != 0) << i;
    return found;
  }
}

/// Whether a mask is set in one lane, in all, in none.
template <typename M>
[[gnu::always_inline]] inline bool any(M mask) {
  return bits(mask) != 0;
}
template <typename M>
[[gnu::always_inline]] inline bool all(M mask) {
  return bits(mask) == ~std::uint64_t{0} >> (64 - detail::kCount<M>);
}
template <typename M>
[[gnu::always_inline]] inline bool none(M mask) {
  return bits(mask) == 0;
}

namespace detail {

/// Replaces what `combined` found by NaN if a lane is NaN.
template <typename V>
[[gnu::always_inline]] inline Lane<V> nan_or(Lane<V> found, V v) {
  using T = Lane<V>;
  if constexpr (kFloating<T>) return any(v != v) ? static_cast<T>(__builtin_nan("")) : found;
  return found;
}

}  // namespace detail

/// The greatest and the least of all lanes; NaN if a lane is NaN.
template <typename V>
[[gnu::always_inline]] inline detail::Lane<V> largest(V v) {
  const auto found = detail::combined(v, [](auto a, auto b) __attribute__((always_inline)) { return max(a, b); });
  return detail::nan_or(found, v);
}
template <typename V>
[[gnu::always_inline]] inline detail::Lane<V> smallest(V v) {
  const auto found = detail::combined(v, [](auto a, auto b) __attribute__((always_inline)) { return min(a, b); });
  return detail::nan_or(found, v);
}

/// Loads base[index[i]] into lane i, as T; `index` is a vector of N integers. One element at a time: AVX2's instruction
/// takes 1.4 times as long for float, and 1.5 times for double, on a processor of AMD's third generation (Zen 3).
template <typename T, int N = kLanes<T>, typename S, typename V>
[[gnu::always_inline]] inline Vec<T, N> gather(const S* base, V index) {
  static_assert(detail::kCount<V> == N, "gather: as many indices as lanes");
  Vec<T, N> v{};
  for (int i = 0; i < N; ++i) v[i] = static_cast<T>(base[index[i]]);
  return v;
}

}  // namespace opmatrix::simd
