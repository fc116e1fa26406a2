// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The problem that the loss of a language model is measured on, made on the device: hidden states, a classifier and
/// labels.
///
/// Hidden states are N(0, 1). The classifier, times sqrt(channels), is N(0, 1) in `flat` data and N(0, 2.4^2) in
/// `spread` data, so that logits have those distributions. In `zipf` data it is N(0, 1.5^2), and channel 0, which is 4
/// in all hidden states, adds -1.2 ln(rank) to logits, with ranks in random order: entries are as unequal as words are.
/// Labels are drawn from the softmax of the logits rounded to bf16.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/testing/generators.hpp>

#include "real_weights.hpp"
#include "streaming.cuh"
#include "zipf_ranks.hpp"

namespace bench {

enum class loss_data { flat, spread, zipf, smollm2 };

inline std::string name_of(loss_data data) {
  constexpr char const* names[] = {"flat", "spread", "zipf", "smollm2"};
  return names[static_cast<int>(data)];
}

template <class T>
__global__ void set_first_column(tessera::matrix_view<T> matrix, T const* values) {
  std::int64_t const row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row < matrix.extent(0)) {
    matrix(row, 0) = values[row];
  }
}

/// Packs an entry so that packed values order as their keys do, then by entry.
__device__ inline unsigned long long packed_candidate(float key, std::uint32_t entry) {
  std::uint32_t const bits = __float_as_uint(key);
  std::uint32_t const ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  return static_cast<unsigned long long>(ordered) << 32 | entry;
}

/// Gumbel noise: minus the logarithm of an exponential variate. Variates near zero, which decide, have all digits of a
/// float.
__device__ inline float gumbel(std::uint64_t seed, std::uint64_t index) {
  auto const uniform = static_cast<float>(tessera::testing::detail::unit(tessera::testing::hash(seed, index)));
  return -logf(-log1pf(-uniform));
}

/// Draws labels with a block for each token: the entry with the largest sum of logit and Gumbel noise has the
/// distribution of the softmax. `best` holds the best of the entries before `first`.
template <class Logit>
__global__ void draw_candidates(tessera::matrix_view<Logit const> logits, std::int64_t first, std::int64_t vocabulary,
                                std::uint64_t seed, unsigned long long* best) {
  std::int64_t const token = blockIdx.x;
  unsigned long long found = 0;
  for (std::int64_t column = threadIdx.x; column < logits.extent(1); column += blockDim.x) {
    std::int64_t const entry = first + column;
    float const noise = gumbel(seed, static_cast<std::uint64_t>(token * vocabulary + entry));
    float const key = tessera::load(logits(token, column)) + noise;
    unsigned long long const candidate = packed_candidate(key, static_cast<std::uint32_t>(entry));
    found = candidate > found ? candidate : found;
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    unsigned long long const other = __shfl_xor_sync(0xffffffffU, found, distance);
    found = other > found ? other : found;
  }
  if (threadIdx.x % 32 == 0) {
    atomicMax(&best[token], found);
  }
}

template <class Label>
__global__ void take_labels(unsigned long long const* best, Label* labels, std::int64_t tokens) {
  std::int64_t const token = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (token < tokens) {
    labels[token] = static_cast<Label>(best[token] & 0xffffffffU);
  }
}

class loss_problem {
 public:
  loss_problem(loss_data data, tessera::linear_loss_shape const& shape) : data_(data), shape_(shape) {
    make_operands();
    draw_labels();
    memory_.wait();
  }
  explicit loss_problem(real_classifier const& real)
      : data_(loss_data::smollm2), shape_{real.tokens, real.vocabulary, real.channels} {
    upload(real.hidden.data(), hidden_);
    upload(real.classifier.data(), classifier_);
    upload(real.labels.data(), labels_);
  }

  loss_data data() const { return data_; }
  tessera::linear_loss_shape const& shape() const { return shape_; }
  device_memory& memory() { return memory_; }
  tessera::cuda const& exec() const { return exec_; }
  tessera::matrix_view<tessera::bfloat16 const> hidden() const {
    return {hidden_.data(), {shape_.tokens, shape_.channels}};
  }
  tessera::matrix_view<tessera::bfloat16 const> classifier() const {
    return {classifier_.data(), {shape_.vocabulary, shape_.channels}};
  }
  tessera::array_view<std::int64_t const> labels() const { return {labels_.data(), shape_.tokens}; }
  tessera::linear_loss_inputs<tessera::bfloat16, std::int64_t> inputs() const {
    return {hidden(), classifier(), labels()};
  }
  /// Operations of one product of hidden states and classifier.
  double operations() const {
    return 2.0 * static_cast<double>(shape_.tokens) * static_cast<double>(shape_.vocabulary) *
           static_cast<double>(shape_.channels);
  }

  /// Calls `body(first, logits)` for parts of the vocabulary that cover all of it. `logits` are those of the entries
  /// from `first` on, tokens x entries. Parts begin at multiples of 128.
  template <class Logit, class Body>
  void for_logits(Body const& body) {
    constexpr std::int64_t most = 16384;
    std::int64_t const widest = std::min(most, shape_.vocabulary);
    device_array<Logit> storage(memory_, static_cast<std::size_t>(shape_.tokens * widest));
    for (std::int64_t first = 0; first < shape_.vocabulary; first += widest) {
      std::int64_t const width = std::min(widest, shape_.vocabulary - first);
      tessera::matrix_view<tessera::bfloat16 const> const rows(classifier_.data() + first * shape_.channels,
                                                               {width, shape_.channels});
      tessera::matrix_view<Logit> const logits(storage.data(), {shape_.tokens, width});
      tessera::linear<tessera::bfloat16>::forward(exec_, hidden(), rows, logits);
      body(first, tessera::matrix_view<Logit const>(logits));
    }
  }

 private:
  enum seeds : std::uint64_t { hidden_seed = 1, classifier_seed, rank_seed, label_seed };

  void make_operands() {
    double const deviation = data_ == loss_data::flat ? 1.0 : data_ == loss_data::spread ? 2.4 : zipf_deviation;
    fill(hidden_, tessera::testing::gauss{}, hidden_seed, memory_.stream());
    fill(classifier_, tessera::testing::gauss{.sigma = deviation / std::sqrt(static_cast<double>(shape_.channels))},
         classifier_seed, memory_.stream());
    if (data_ == loss_data::zipf) {
      set_channel(hidden_, shape_.tokens, std::vector<float>(static_cast<std::size_t>(shape_.tokens), zipf_hidden));
      set_channel(classifier_, shape_.vocabulary, zipf_channel(shape_.vocabulary, rank_seed));
    }
  }

  /// Sets channel 0 of all rows.
  void set_channel(device_array<tessera::bfloat16> const& matrix, std::int64_t rows, std::vector<float> const& values) {
    std::vector<tessera::bfloat16> rounded;
    for (float const value : values) {
      rounded.push_back(tessera::store<tessera::bfloat16>(value));
    }
    device_array<tessera::bfloat16> column(memory_, rounded.size());
    upload(rounded.data(), column);
    set_first_column<<<blocks_for(rows), 256, 0, memory_.stream()>>>(
        tessera::matrix_view<tessera::bfloat16>(matrix.data(), {rows, shape_.channels}), column.data());
    check(cudaGetLastError(), "set_first_column");
  }

  void draw_labels() {
    device_array<unsigned long long> best(memory_, static_cast<std::size_t>(shape_.tokens));
    check(cudaMemsetAsync(best.data(), 0, best.bytes(), memory_.stream()), "cudaMemsetAsync");
    for_logits<tessera::bfloat16>([&](std::int64_t first, auto logits) {
      draw_candidates<<<static_cast<unsigned>(shape_.tokens), 256, 0, memory_.stream()>>>(
          logits, first, shape_.vocabulary, label_seed, best.data());
      check(cudaGetLastError(), "draw_candidates");
    });
    take_labels<<<blocks_for(shape_.tokens), 256, 0, memory_.stream()>>>(best.data(), labels_.data(), shape_.tokens);
    check(cudaGetLastError(), "take_labels");
  }

  template <class From, class To>
  void upload(From const* from, device_array<To> const& to) {
    static_assert(sizeof(From) == sizeof(To));
    check(cudaMemcpyAsync(to.data(), from, to.bytes(), cudaMemcpyHostToDevice, memory_.stream()), "cudaMemcpyAsync");
    memory_.wait();  // the source must stay until then
  }
  static unsigned blocks_for(std::int64_t threads) { return static_cast<unsigned>(tessera::divide_up(threads, 256L)); }

  loss_data data_;
  tessera::linear_loss_shape shape_;
  device_memory memory_;
  tessera::cuda exec_{.stream = memory_.stream(), .memory = memory_};
  device_array<tessera::bfloat16> hidden_{memory_, static_cast<std::size_t>(shape_.tokens* shape_.channels)};
  device_array<tessera::bfloat16> classifier_{memory_, static_cast<std::size_t>(shape_.vocabulary* shape_.channels)};
  device_array<std::int64_t> labels_{memory_, static_cast<std::size_t>(shape_.tokens)};
};

}  // namespace bench
