// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks the results of a loss, on the device: by the softmax from all logits, which the loss itself never has in
/// memory, and by distances of gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "kept_blocks.hpp"
#include "loss_problem.cuh"

namespace bench {

/// Surveys the softmax with a block of threads for each block of Rows tokens x Columns entries, a thread for each
/// column. `matters` (blocks of tokens x vocabulary) gets the columns in which an element reaches the threshold.
template <int Rows, int Columns>
__global__ void survey_softmax(tessera::matrix_view<float const> logits, std::int64_t first, float const* log_sum_exps,
                               std::int64_t const* labels, float threshold, tessera::matrix_view<unsigned char> matters,
                               double* loss, double* token_sums) {
  std::int64_t const column = std::int64_t{blockIdx.x} * Columns + threadIdx.x;
  std::int64_t const first_row = std::int64_t{blockIdx.y} * Rows;
  std::int64_t const last_row = tessera::min(first_row + Rows, logits.extent(0));
  bool is_kept = false;
  for (std::int64_t row = first_row; row < last_row; ++row) {
    float softmax = 0.0F;
    if (column < logits.extent(1)) {
      float const log_softmax = logits(row, column) - log_sum_exps[row];
      bool const is_label = labels[row] == first + column;
      softmax = expf(log_softmax);
      is_kept = is_kept || !(fabsf(softmax - (is_label ? 1.0F : 0.0F)) < threshold);
      if (is_label) {
        atomicAdd(loss, -static_cast<double>(log_softmax));
      }
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      softmax += __shfl_xor_sync(0xffffffffU, softmax, distance);
    }
    if (threadIdx.x % 32 == 0) {
      atomicAdd(&token_sums[row], static_cast<double>(softmax));
    }
  }
  if (column < logits.extent(1)) {
    matters(blockIdx.y, first + column) = is_kept ? 1 : 0;
  }
}

template <class T>
std::vector<T> download(device_array<T> const& array, device_memory& memory) {
  std::vector<T> values(array.size());
  check(cudaMemcpyAsync(values.data(), array.data(), array.bytes(), cudaMemcpyDeviceToHost, memory.stream()),
        "cudaMemcpyAsync");
  memory.wait();
  return values;
}

/// The comparison of log-sum-exps that the loss found with all logits.
struct softmax_survey {
  double kept;  ///< part of the blocks in which |softmax - [label]| reaches the threshold
  /// Part of the blocks in which |softmax - [label]| reaches the threshold, with entries in the order of how many
  /// blocks of tokens they matter to.
  double kept_ordered;
  double worst_total;  ///< largest |1 - sum of a token's softmax|
  double loss;         ///< mean over tokens
};

/// Surveys the softmax. Filter: a gradient_filter, which has the threshold and the size of blocks.
template <class Filter>
softmax_survey survey(loss_problem& problem, float const* log_sum_exps) {
  cudaStream_t const stream = problem.memory().stream();
  tessera::linear_loss_shape const& shape = problem.shape();
  std::int64_t const row_blocks = tessera::divide_up(shape.tokens, std::int64_t{Filter::rows});
  auto const vocabulary = static_cast<std::size_t>(shape.vocabulary);
  device_array<double> sums(problem.memory(), static_cast<std::size_t>(shape.tokens) + 1);  // the last one is the loss
  device_array<unsigned char> matters(problem.memory(), static_cast<std::size_t>(row_blocks) * vocabulary);
  check(cudaMemsetAsync(sums.data(), 0, sums.bytes(), stream), "cudaMemsetAsync");
  problem.for_logits<float>([&](std::int64_t first, auto logits) {
    dim3 const grid(static_cast<unsigned>(tessera::divide_up(logits.extent(1), std::int64_t{Filter::columns})),
                    static_cast<unsigned>(row_blocks));
    survey_softmax<Filter::rows, Filter::columns><<<grid, Filter::columns, 0, stream>>>(
        logits, first, log_sum_exps, problem.labels().data, Filter::threshold,
        tessera::matrix_view<unsigned char>(matters.data(), {row_blocks, shape.vocabulary}), sums.data() + shape.tokens,
        sums.data());
    check(cudaGetLastError(), "survey_softmax");
  });
  std::vector<double> of_tokens = download(sums, problem.memory());
  std::vector<unsigned char> const found = download(matters, problem.memory());
  double const loss = of_tokens.back() / static_cast<double>(shape.tokens);
  of_tokens.pop_back();
  softmax_survey result{kept_blocks(found, in_own_order(vocabulary), Filter::columns),
                        kept_blocks(found, by_use(found, vocabulary), Filter::columns), 0, loss};
  for (double const sum : of_tokens) {
    double const apart = std::abs(1 - sum);
    result.worst_total = apart <= result.worst_total ? result.worst_total : apart;  // a NaN stays
  }
  return result;
}

struct distance_sums {
  double apart;  ///< squared difference
  double length;
};

template <class T>
__global__ void add_distances(T const* found, float const* expected, std::size_t count, distance_sums* sums) {
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  double apart = 0;
  double length = 0;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    double const difference = static_cast<double>(tessera::load(found[i])) - static_cast<double>(expected[i]);
    apart += difference * difference;
    length += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    apart += __shfl_xor_sync(0xffffffffU, apart, distance);
    length += __shfl_xor_sync(0xffffffffU, length, distance);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&sums->apart, apart);
    atomicAdd(&sums->length, length);
  }
}

/// The relative distance |found - expected| / |expected|.
template <class T>
double relative_distance(device_array<T> const& found, device_array<float> const& expected, device_memory& memory) {
  device_array<distance_sums> sums(memory, 1);
  distance_sums total{};
  check(cudaMemsetAsync(sums.data(), 0, sums.bytes(), memory.stream()), "cudaMemsetAsync");
  int const blocks = 8 * device_attribute(cudaDevAttrMultiProcessorCount);
  add_distances<<<blocks, 256, 0, memory.stream()>>>(found.data(), expected.data(), expected.size(), sums.data());
  check(cudaGetLastError(), "add_distances");
  check(cudaMemcpyAsync(&total, sums.data(), sizeof total, cudaMemcpyDeviceToHost, memory.stream()), "cudaMemcpyAsync");
  memory.wait();
  return std::sqrt(total.apart / total.length);
}

/// Throws unless `value` is at most `limit`; throws for a NaN.
inline void require_at_most(double value, double limit, std::string const& what) {
  if (!(value <= limit)) {
    throw std::runtime_error(what + " is " + std::to_string(value) + " but must be at most " + std::to_string(limit));
  }
}

}  // namespace bench
