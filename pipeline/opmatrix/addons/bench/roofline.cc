// The limits of the machine: two copy loops and a loop of fused multiply-adds, on any number of threads.
//
// Each function runs `repeats` passes on each thread, all threads at once, and returns the seconds from the moment at
// which all have begun. On one thread it starts none.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
constexpr int kChains = 12;  // independent ones, more than latency times throughput of any x86-64; all in registers
constexpr int kInner = 256;  // multiply-adds of each chain in a pass

template <typename T>
using Vec [[gnu::vector_size(kBytes)]] = T;

template <typename F>
double on_threads(int threads, const F& work) {
  using Clock = std::chrono::steady_clock;
  if (threads == 1) {
    const auto start = Clock::now();
    work(0);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> others;
  for (int n = 1; n < threads; ++n) {
    others.emplace_back([&, n] {
      ready.fetch_add(1);
      while (!go.load()) std::this_thread::yield();
      work(n);
    });
  }
  while (ready.load() != threads - 1) std::this_thread::yield();
  const auto start = Clock::now();
  go.store(true);
  work(0);
  for (auto& other : others) other.join();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <typename T>
double fma_loop(int threads, std::int64_t repeats) {
  std::vector<double> sums(static_cast<std::size_t>(threads));
  const double seconds = on_threads(threads, [&](int thread) {
    // Read at run time, and other ones in each chain, so that the compiler merges no chains; they never overflow.
    volatile T factor = T(0.5);
    volatile T summand = T(1);
    Vec<T> a{};
    Vec<T> b{};
    Vec<T> chain[kChains] = {};
    a += factor;
    b += summand;
    for (Vec<T>& one : chain) one += summand;
    for (std::int64_t pass = 0; pass < repeats; ++pass) {
      for (int n = 0; n < kInner; ++n) {
#pragma GCC unroll 12
        for (int c = 0; c < kChains; ++c) chain[c] = chain[c] * a + b;
      }
    }
    double sum = 0;
    for (const Vec<T>& one : chain) sum += static_cast<double>(one[0]);
    sums[static_cast<std::size_t>(thread)] = sum;
  });
  volatile double sink = sums[0];
  static_cast<void>(sink);
  return seconds;
}

template <typename F>
double copy_loop(std::int64_t bytes, int threads, std::int64_t repeats, const F& copy) {
  return on_threads(threads, [=](int thread) {
    const std::int64_t begin = bytes * thread / threads;
    const std::int64_t end = bytes * (thread + 1) / threads;
    for (std::int64_t pass = 0; pass < repeats; ++pass) {
      copy(begin, end - begin);
      asm volatile("" : : : "memory");  // each pass counts, although it writes the same
    }
  });
}

}  // namespace

extern "C" {

// memcpy, which writes around the caches where much is copied.
double opmatrix_copy_memcpy(char* to, const char* from, std::int64_t bytes, int threads, std::int64_t repeats) {
  return copy_loop(bytes, threads, repeats, [=](std::int64_t begin, std::int64_t count) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(count));
  });
}

// Loads and stores of whole registers, as a kernel has them.
double opmatrix_copy_vectors(char* to, const char* from, std::int64_t bytes, int threads, std::int64_t repeats) {
  return copy_loop(bytes, threads, repeats, [=](std::int64_t begin, std::int64_t count) {
    typedef char Unaligned __attribute__((vector_size(kBytes), aligned(1), may_alias));
    // Not auto, which drops the alignment.
    const Unaligned* source = reinterpret_cast<const Unaligned*>(from + begin);
    Unaligned* target = reinterpret_cast<Unaligned*>(to + begin);
    const std::int64_t whole = count / kBytes;
    for (std::int64_t i = 0; i < whole; ++i) {
      target[i] = source[i];
      asm volatile("" : : : "memory");  // so that this does not become a call of memcpy
    }
    std::memcpy(to + begin + whole * kBytes, from + begin + whole * kBytes, static_cast<std::size_t>(count % kBytes));
  });
}

double opmatrix_fma_float32(int threads, std::int64_t repeats) {
  return fma_loop<float>(threads, repeats);
}
double opmatrix_fma_float64(int threads, std::int64_t repeats) {
  return fma_loop<double>(threads, repeats);
}

// The floating-point operations of one pass on one thread.
std::int64_t opmatrix_flops_float32() {
  return 2LL * kChains * kInner * (kBytes / 4);
}
std::int64_t opmatrix_flops_float64() {
  return 2LL * kChains * kInner * (kBytes / 8);
}
}
