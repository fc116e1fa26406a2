// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What the results of a loss are judged by, on the device: the softmax from all logits, which the loss itself never
/// has in memory, and distances of gradients.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "loss_problem.cuh"

namespace bench {

struct softmax_sums {
  unsigned long long kept;  ///< blocks
  double loss;              ///< of all tokens
};

/// A block of threads for each block of Rows tokens x Columns entries, a thread for each column.
template <int Rows, int Columns>
__global__ void survey_softmax(tessera::matrix_view<float const> logits, std::int64_t first, float const* log_sum_exps,
                               std::int64_t const* labels, float threshold, softmax_sums* sums, double* token_sums) {
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
        atomicAdd(&sums->loss, -static_cast<double>(log_softmax));
      }
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      softmax += __shfl_xor_sync(0xffffffffU, softmax, distance);
    }
    if (threadIdx.x % 32 == 0) {
      atomicAdd(&token_sums[row], static_cast<double>(softmax));
    }
  }
  bool const any = __syncthreads_or(is_kept ? 1 : 0) != 0;
  if (any && threadIdx.x == 0) {
    atomicAdd(&sums->kept, 1ULL);
  }
}

/// What all logits say of log-sum-exps that the loss found.
struct softmax_survey {
  double kept;         ///< part of the blocks in which |softmax - [label]| reaches the threshold
  double worst_total;  ///< largest |1 - sum of a token's softmax|
  double loss;         ///< mean over tokens
};

/// Filter: a gradient_filter, which says how large blocks are and what the threshold is.
template <class Filter>
softmax_survey survey(loss_problem& problem, float const* log_sum_exps) {
  cudaStream_t const stream = problem.memory().stream();
  auto const tokens = static_cast<std::size_t>(problem.shape().tokens);
  device_array<softmax_sums> sums(problem.memory(), 1);
  device_array<double> token_sums(problem.memory(), tokens);
  check(cudaMemsetAsync(sums.data(), 0, sums.bytes(), stream), "cudaMemsetAsync");
  check(cudaMemsetAsync(token_sums.data(), 0, token_sums.bytes(), stream), "cudaMemsetAsync");
  double blocks = 0;
  problem.for_logits<float>([&](std::int64_t first, auto logits) {
    dim3 const grid(static_cast<unsigned>(tessera::divide_up(logits.extent(1), std::int64_t{Filter::columns})),
                    static_cast<unsigned>(tessera::divide_up(logits.extent(0), std::int64_t{Filter::rows})));
    survey_softmax<Filter::rows, Filter::columns><<<grid, Filter::columns, 0, stream>>>(
        logits, first, log_sum_exps, problem.labels().data, Filter::threshold, sums.data(), token_sums.data());
    check(cudaGetLastError(), "survey_softmax");
    blocks += static_cast<double>(grid.x) * grid.y;
  });
  softmax_sums total{};
  std::vector<double> of_tokens(tokens);
  check(cudaMemcpyAsync(&total, sums.data(), sizeof total, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
  check(cudaMemcpyAsync(of_tokens.data(), token_sums.data(), token_sums.bytes(), cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
  problem.memory().wait();
  softmax_survey result{static_cast<double>(total.kept) / blocks, 0, total.loss / static_cast<double>(tokens)};
  for (double const sum : of_tokens) {
    double const apart = std::abs(1 - sum);
    result.worst_total = apart <= result.worst_total ? result.worst_total : apart;  // keeps a NaN
  }
  return result;
}

struct distance_sums {
  double apart;  ///< squared
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

/// |found - expected| / |expected|.
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

/// Throws unless `value` is at most `limit`; a NaN is not.
inline void require_at_most(double value, double limit, std::string const& what) {
  if (!(value <= limit)) {
    throw std::runtime_error(what + " is " + std::to_string(value) + " but must be at most " + std::to_string(limit));
  }
}

}  // namespace bench
