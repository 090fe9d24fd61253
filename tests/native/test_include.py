"""Views, checks and parallel_for, without a framework: a C++ program that asserts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.building import compile_program

pytestmark = pytest.mark.compile

PROGRAM = r"""
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernel_error.h"
#include "kernel_sizes.h"
#include "kernel_threads.h"
#include "opmatrix/check.h"
#include "opmatrix/list.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

using namespace opmatrix;

#define EXPECT(condition) \
  do { if (!(condition)) { std::printf("line %d: %s\n", __LINE__, #condition); std::exit(1); } } while (false)

// Axis 0 is the kernel's, axis 1 is gone, axis 2 is 7, and axis 3 that of the input.
void kernel_sizes() {
  const std::int64_t given[] = {2, 3, 4, 5};
  std::int64_t first = kUndecided;
  KernelSizes sizes({given, 4});
  sizes.replace(-4, Decided{&first});
  sizes.replace(1, KernelSizes::kRemoved);
  sizes.replace(2, 0);
  sizes.replace(-2, 7);
  sizes.drop_removed();
  const std::int64_t shown[] = {0, 7, 5}, made[] = {9, 7, 5}, others[] = {8, 7, 5}, longer[] = {9, 7, 6};
  EXPECT(sizes.rank() == 3 && (sizes.sizes() == Sizes{shown, 3}));
  compare_sizes("op", "y", {made, 3}, sizes.known());
  EXPECT(first == 9);
  for (const std::int64_t* wrong : {others, longer}) {
    std::string message;
    try {
      compare_sizes("op", "y", {wrong, 3}, sizes.known());
    } catch (const std::exception& error) {
      message = error.what();
    }
    EXPECT(message == (wrong == others ? "op: the kernel must make y with 9 as the size of axis 0, got (8, 7, 5)"
                                       : "op: the kernel must make y with 5 as the size of axis 2, got (9, 7, 6)"));
  }
}

void views() {
  const std::int64_t sizes[] = {2, 3, 4};
  float data[24] = {};
  const TensorView<float> view{data, {sizes, 3}};
  EXPECT(view.rank() == 3 && view.size(1) == 3 && view.numel() == 24);
  EXPECT(numel(view.sizes, 1) == 12 && numel(view.sizes, 3) == 1);
  EXPECT((TensorView<float>{data, {}}.numel() == 1));  // a scalar
  const std::int64_t others[] = {2, 3, 5};
  EXPECT((Sizes{sizes, 2} == Sizes{others, 2}) && !(Sizes{sizes, 3} == Sizes{others, 3}));
  EXPECT(!(Sizes{sizes, 2} == Sizes{others, 3}) && Sizes{} == Sizes{});

  const OptionalView<float> none;
  const OptionalView<float> some{true, view};
  EXPECT(!none && some && some->rank() == 3 && (*some).data == data);

  struct Owner {
    float data[6];
    Sizes made;
  } owner{};
  const NewTensor<float> output(
      [](void* given, Sizes asked) -> void* {
        auto& self = *static_cast<Owner*>(given);
        self.made = asked;
        return self.data;
      },
      &owner);
  EXPECT(output.make({sizes, 2}).data == owner.data && owner.made.rank == 2 && owner.made.data == sizes);
}

void lists() {
  const std::int64_t numbers[] = {4, 5, 6};
  const List<std::int64_t> list{numbers, 3};
  std::int64_t sum = 0;
  for (const std::int64_t number : list) sum += number;
  EXPECT(sum == 15 && list.size() == 3 && list[1] == 5 && List<float>{}.size() == 0);
  EXPECT(equal("corners", "corners") && !equal("corners", "corner") && !equal("", "c"));
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  const std::int64_t empty[] = {huge, huge, 0};
  EXPECT(numel({empty, 3}) == 0);  // whatever the others are
}

std::string text(std::initializer_list<Part> parts) { return Error(parts).what(); }

void checks() {
  const std::int64_t sizes[] = {5, 6};
  EXPECT(text({"op: x must be 2-D, got ", 3, "-D"}) == "op: x must be 2-D, got 3-D");
  EXPECT(text({Sizes{sizes, 2}, Sizes{sizes, 1}, Sizes{}}) == "(5, 6)(5,)()");
  EXPECT(text({0.1f, " ", 0.1, " ", 2.5f, " ", 1e30f, " ", 16777217.0}) == "0.1 0.1 2.5 1e+30 16777217");
  EXPECT(text({std::numeric_limits<double>::quiet_NaN()}) == "nan");
  EXPECT(text({-std::numeric_limits<float>::infinity()}) == "-inf");
  EXPECT(text({std::numeric_limits<std::int64_t>::min()}) == "-9223372036854775808");
  const std::string longest(5000, 'a');
  EXPECT(text({longest.c_str(), longest.c_str(), 1}).size() == 1023);  // cut, not overrun
  const std::vector<std::int64_t> many(1000, 123456789);
  EXPECT(text({Sizes{many.data(), 1000}}).size() < 1024);
  KERNEL_CHECK(true, "never");
  try {
    KERNEL_CHECK(1 > 2, "got ", 1);
    EXPECT(false);
  } catch (const std::exception& error) {
    EXPECT(std::strcmp(error.what(), "got 1") == 0);
  }
}

// Real threads, split as unevenly as the contract allows.
class ManyThreads final : public Threads {
 public:
  int calls = 0;
  void run(std::int64_t begin, std::int64_t end, std::int64_t grain, Work work, void* context) override {
    ++calls;
    std::vector<std::thread> threads;
    for (std::int64_t from = begin; from < end; from += grain) {
      threads.emplace_back([=] { work(context, from, std::min(end, from + grain)); });
    }
    for (auto& thread : threads) thread.join();
  }
};

void parallel() {
  std::vector<int> touched(1001);
  const auto touch = [&](std::int64_t begin, std::int64_t end) {
    EXPECT(begin < end);
    for (auto i = begin; i < end; ++i) ++touched[static_cast<std::size_t>(i)];
  };
  parallel_for(0, 1001, 10, touch);  // nobody lends threads: serial
  ManyThreads threads;
  {
    const UseThreads use(&threads);
    parallel_for(0, 1001, 10, touch);
    parallel_for(5, 5, 1, touch);   // empty
    parallel_for(7, 5, 1, touch);   // less than empty
    parallel_for(0, 10, 10, touch);  // one grain: not worth a thread
    EXPECT(threads.calls == 1);
  }
  for (std::size_t i = 0; i < 1001; ++i) EXPECT(touched[i] == (i < 10 ? 3 : 2));
  parallel_for(0, 1001, 10, touch);
  EXPECT(threads.calls == 1);  // given back at the end of the call
}

void nested() {
  ManyThreads threads;
  const UseThreads use(&threads);
  std::atomic<int> count = 0;
  parallel_for(0, 8, 1, [&](std::int64_t, std::int64_t) {
    parallel_for(0, 8, 1, [&](std::int64_t begin, std::int64_t end) { count += static_cast<int>(end - begin); });
  });
  EXPECT(count == 64 && threads.calls == 1);
}

void exceptions() {
  ManyThreads threads;
  for (Threads* lent : {static_cast<Threads*>(nullptr), static_cast<Threads*>(&threads)}) {
    const UseThreads use(lent);
    try {
      parallel_for(0, 64, 1, [](std::int64_t begin, std::int64_t end) {
        if (begin <= 13 && 13 < end) throw std::runtime_error("op: thirteen");
      });
      EXPECT(false);
    } catch (const std::runtime_error& error) {
      EXPECT(std::strcmp(error.what(), "op: thirteen") == 0);
    }
    try {  // all of them: one arrives
      parallel_for(0, 64, 1, [](std::int64_t, std::int64_t) { throw 7; });
      EXPECT(false);
    } catch (int thrown) {
      EXPECT(thrown == 7);
    }
  }
}

int main() {
  kernel_sizes();
  views();
  lists();
  checks();
  parallel();
  nested();
  exceptions();
}
"""


def test_views_checks_and_threads(tmp_path: Path) -> None:
    program = compile_program(PROGRAM, tmp_path, "-g", "-pthread", "-fsanitize=undefined")
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
