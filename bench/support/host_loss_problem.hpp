// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The problem of a classifier's loss on the host: real data (real_weights.hpp), or the `zipf` data of
/// loss_problem.cuh with the same distributions and other labels.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/generators.hpp>

#include "real_weights.hpp"
#include "zipf_ranks.hpp"

namespace bench {

/// Hidden states, a classifier and labels on the host, with an executor of one thread.
struct host_loss_problem {
  std::string name;  ///< of the data
  tessera::linear_loss_shape shape;
  std::vector<tessera::bfloat16> hidden;      ///< tokens x channels
  std::vector<tessera::bfloat16> classifier;  ///< vocabulary x channels
  std::vector<std::int64_t> labels;
  tessera::cpu exec{.threads = 1};

  tessera::matrix_view<tessera::bfloat16 const> states() const {
    return {hidden.data(), {shape.tokens, shape.channels}};
  }
  tessera::matrix_view<tessera::bfloat16 const> rows() const {
    return {classifier.data(), {shape.vocabulary, shape.channels}};
  }
  tessera::linear_loss_inputs<tessera::bfloat16, std::int64_t> inputs() const { return {states(), rows(), labels}; }
  /// Operations of one product of hidden states and classifier.
  double operations() const {
    return 2.0 * static_cast<double>(shape.tokens) * static_cast<double>(shape.vocabulary) *
           static_cast<double>(shape.channels);
  }

  /// Calls `body(first, logits)` for parts of the vocabulary that cover all of it. `logits` are those of the entries
  /// from `first` on, tokens x entries, in fp32.
  template <class Body>
  void for_logits(Body const& body) const {
    std::int64_t const widest = std::min(std::int64_t{4096}, shape.vocabulary);
    std::vector<float> storage(static_cast<std::size_t>(shape.tokens * widest));
    for (std::int64_t first = 0; first < shape.vocabulary; first += widest) {
      std::int64_t const width = std::min(widest, shape.vocabulary - first);
      tessera::matrix_view<tessera::bfloat16 const> const part(classifier.data() + first * shape.channels,
                                                               {width, shape.channels});
      tessera::matrix_view<float> const logits(storage.data(), {shape.tokens, width});
      tessera::linear<tessera::bfloat16>::forward(exec, states(), part, logits);
      exec.wait();
      body(first, tessera::matrix_view<float const>(logits));
    }
  }
};

inline std::vector<tessera::bfloat16> from_bits(std::vector<std::uint16_t> const& bits) {
  std::vector<tessera::bfloat16> values;
  values.reserve(bits.size());
  for (std::uint16_t const each : bits) {
    values.push_back(std::bit_cast<tessera::bfloat16>(each));
  }
  return values;
}

/// SmolLM2's classifier and hidden states, as many as there are.
inline host_loss_problem real_loss_problem(std::string const& name, real_classifier const& real) {
  return {name,
          {real.tokens, real.vocabulary, real.channels},
          from_bits(real.hidden),
          from_bits(real.classifier),
          real.labels};
}

namespace detail {

/// Matrix of N(0, sigma^2), whose channel 0 is given.
inline std::vector<tessera::bfloat16> gauss_rows(std::uint64_t seed, double sigma, std::int64_t channels,
                                                 std::vector<float> const& first_channel) {
  std::vector<tessera::bfloat16> values(first_channel.size() * static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i < values.size(); ++i) {
    bool const is_first = i % static_cast<std::size_t>(channels) == 0;
    values[i] = is_first
                    ? tessera::store<tessera::bfloat16>(first_channel[i / static_cast<std::size_t>(channels)])
                    : tessera::testing::sample<tessera::bfloat16>(tessera::testing::gauss{.sigma = sigma}, seed, i);
  }
  return values;
}

/// Draws labels from the softmax: the entry with the largest sum of logit and Gumbel noise has its distribution.
inline void draw_labels(host_loss_problem& problem, std::uint64_t seed) {
  auto const tokens = static_cast<std::size_t>(problem.shape.tokens);
  problem.labels.assign(tokens, 0);
  std::vector<float> best(tokens, -std::numeric_limits<float>::infinity());
  problem.for_logits([&](std::int64_t first, auto logits) {
    for (std::size_t token = 0; token < tokens; ++token) {
      for (std::int64_t column = 0; column < logits.extent(1); ++column) {
        std::int64_t const entry = first + column;
        auto const index =
            static_cast<std::uint64_t>(static_cast<std::int64_t>(token) * problem.shape.vocabulary + entry);
        auto const uniform = static_cast<float>(tessera::testing::detail::unit(tessera::testing::hash(seed, index)));
        float const key = logits(static_cast<std::int64_t>(token), column) - std::log(-std::log1p(-uniform));
        if (key > best[token]) {
          best[token] = key;
          problem.labels[token] = entry;
        }
      }
    }
  });
}

}  // namespace detail

/// Data in which entries are as unequally frequent as words.
inline host_loss_problem zipf_loss_problem(std::string const& name, tessera::linear_loss_shape const& shape) {
  enum seeds : std::uint64_t { hidden_seed = 1, classifier_seed, rank_seed, label_seed };
  double const sigma = zipf_deviation / std::sqrt(static_cast<double>(shape.channels));
  std::vector<float> const of_states(static_cast<std::size_t>(shape.tokens), zipf_hidden);
  host_loss_problem problem{
      name,
      shape,
      detail::gauss_rows(hidden_seed, 1.0, shape.channels, of_states),
      detail::gauss_rows(classifier_seed, sigma, shape.channels, zipf_channel(shape.vocabulary, rank_seed)),
      {}};
  detail::draw_labels(problem, label_seed);
  return problem;
}

}  // namespace bench
