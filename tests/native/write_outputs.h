// A program that calls a kernel once for each stored call, with one thread, and writes the outputs into a file: of
// each, the number of its axes, their sizes, and the elements. It prints the level of x86-64 that ran.
#pragma once

#include <fstream>

#include "cpu_level.h"
#include "race_driver.h"

inline int write_outputs(const opmatrix::race_driver::Kernel& kernel, int count, char** arguments) {
  using namespace opmatrix::race_driver;
  if (count != 3) end("usage: program CALLS OUTPUTS");
  std::ofstream file(arguments[2], std::ios::binary);
  const auto number = [&file](std::int64_t value) { file.write(reinterpret_cast<const char*>(&value), sizeof value); };
  is_alone = true;
  for (const Call& call : File(arguments[1]).calls()) {
    const Results results = kernel.run(call);
    if (!results.refusal.empty())
      end(call.name + ": the kernel rejects what the reference computes: " + results.refusal);
    for (const Output& output : results.outputs) {
      const Tensor& tensor = output.tensor();
      number(static_cast<std::int64_t>(tensor.shape.size()));
      for (const std::int64_t size : tensor.shape) number(size);
      file.write(reinterpret_cast<const char*>(tensor.bytes.data()), static_cast<std::streamsize>(tensor.bytes.size()));
    }
  }
  std::printf("x86-64-v%d\n", opmatrix::cpu_level());
  return file.flush() ? 0 : 1;
}
