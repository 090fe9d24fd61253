// Times one kernel on one thread: processor time, so that other processes do not count.
#include <cstdint>
#include <ctime>

using Kernel = void (*)(const void* x, void* y, std::int64_t count);

extern "C" double seconds(Kernel kernel, const void* x, void* y, std::int64_t count, std::int64_t repeats) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  for (std::int64_t i = 0; i < repeats; ++i) kernel(x, y, count);
  return now() - start;
}
