// The edges between points whose distance is less than a radius.
//
//   (i, j) is an edge where batch[i] == batch[j], |x[i] - x[j]|^2 < r^2, and i != j or `loop`
//
// of each point i the first max_num_neighbors by j, points in order of i. edge_index[0] holds j and edge_index[1] holds
// i with flow "source_to_target", the other way round with "target_to_source". As torch_cluster 1.6 has it on a GPU; on
// a CPU it has the same edges in the order of a search tree, which also decides which ones stay.
//
// Shapes   x (N, F), batch (N,), never decreasing; edge_index (2, E). Points of no dimension have no edges.
// Numbers  Distances are sums of squares in double, the first dimension first; r^2 is double: no edge is rounding.
// NaN      A point with NaN, or with an infinity, has no edges.
// Aliasing No output overlaps an input.
#pragma once

#include <cstdint>
#include <vector>

#include "opmatrix/check.h"
#include "opmatrix/list.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::radius_graph {

/// Returns |a - b|^2.
template <typename T>
double squared_distance(const T* a, const T* b, std::int64_t dimensions) {
  double sum = 0;
  for (std::int64_t f = 0; f < dimensions; ++f) {
    const double difference = static_cast<double>(a[f]) - static_cast<double>(b[f]);
    sum += difference * difference;
  }
  return sum;
}

template <typename T>
void radius_graph(TensorView<const T> x, OptionalView<const std::int64_t> batch, float r, bool loop,
                  std::int64_t max_num_neighbors, const char* flow, NewTensor<std::int64_t> edge_index) {
  const std::int64_t points = x.size(0), dimensions = x.size(1);
  const double limit = static_cast<double>(r) * static_cast<double>(r);

  // The examples, each from one entry to the next.
  std::vector<std::int64_t> begins{0};
  for (std::int64_t i = 1; batch && i < points; ++i) {
    const std::int64_t before = batch->data[i - 1], example = batch->data[i];
    KERNEL_CHECK(example >= before, "radius_graph: batch must not decrease, but batch[", i, "] is ", example,
                 " behind ", before);
    if (example > before) begins.push_back(i);
  }
  begins.push_back(points);

  std::vector<std::vector<std::int64_t>> neighbours(static_cast<std::size_t>(points));
  const auto find = [&](std::int64_t first, std::int64_t last) {
    std::size_t example = 0;
    for (std::int64_t i = first; i < last; ++i) {
      while (begins[example + 1] <= i) ++example;
      std::vector<std::int64_t>& found = neighbours[static_cast<std::size_t>(i)];
      for (std::int64_t j = begins[example]; j < begins[example + 1]; ++j) {
        if (static_cast<std::int64_t>(found.size()) == max_num_neighbors) break;
        if (!loop && i == j) continue;
        if (squared_distance(x.data + i * dimensions, x.data + j * dimensions, dimensions) < limit) found.push_back(j);
      }
    }
  };
  constexpr std::int64_t kDifferencesPerThread = 65536;
  if (dimensions > 0) parallel_for(0, points, 1 + kDifferencesPerThread / (points * dimensions + 1), find);

  std::int64_t edges = 0;
  for (const auto& found : neighbours) edges += static_cast<std::int64_t>(found.size());
  const std::int64_t sizes[] = {2, edges};
  const TensorView<std::int64_t> made = edge_index.make({sizes, 2});
  const bool to_point = equal(flow, "source_to_target");
  std::int64_t* of_neighbour = made.data + (to_point ? 0 : edges);
  std::int64_t* of_point = made.data + (to_point ? edges : 0);
  for (std::int64_t i = 0; i < points; ++i) {
    for (const std::int64_t j : neighbours[static_cast<std::size_t>(i)]) {
      *of_neighbour++ = j;
      *of_point++ = i;
    }
  }
}

}  // namespace opmatrix::radius_graph
