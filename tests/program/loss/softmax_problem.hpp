// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Softmaxes as a forward pass leaves them, and the gradients that they are to become, for tests of prepare_softmaxes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/detail/signed_references.hpp>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/testing/generators.hpp>

namespace tessera_test {

using namespace tessera;

namespace softmaxes {

inline constexpr std::int64_t tokens = 130;
inline constexpr std::int64_t channels = 27;
inline constexpr float log2_e = 1.442695041F;

/// Logits, and what a forward pass leaves of them. Every seventh token has no logit that counts. With an offset that is
/// not 0 a whole tile is masked. Tiles share the labels' logits as references, or each has its own. References: where
/// these lie.
template <class References = references_of_tiles>
struct softmax_problem {
  static constexpr bool has_signs = std::is_same_v<References, references_in_signs>;
  static constexpr std::int64_t tile = has_signs ? 64 : kept_softmaxes<bfloat16>::tile_entries;
  std::int64_t vocabulary;
  float cap;
  float inverse_temperature;
  bool shares;
  std::int64_t stride = divide_up(vocabulary, std::int64_t{128}) * 128;
  std::int64_t tiles = divide_up(vocabulary, tile);
  std::vector<float> logits;
  std::vector<bfloat16> values = std::vector<bfloat16>(static_cast<std::size_t>(tokens * stride));
  std::vector<float> references = std::vector<float>(static_cast<std::size_t>(tiles * tokens));
  std::vector<float> shared_references = std::vector<float>(tokens);
  std::vector<std::int32_t> is_uneven;
  std::vector<std::int32_t> state{kept_softmaxes<bfloat16>::there};
  std::vector<bfloat16> hidden;
  std::vector<bfloat16> scaled_hidden = std::vector<bfloat16>(static_cast<std::size_t>(tokens * channels));
  std::vector<loss_token_factors> factors;
  std::vector<std::int64_t> row_of;
  std::vector<float> targets;
  std::vector<std::uint8_t> blocks = std::vector<std::uint8_t>(static_cast<std::size_t>(2 * stride / 128));

  softmax_problem(std::int64_t entries, float softcap, float temperature, bool shares_references, float offset = 0)
      : vocabulary(entries),
        cap(softcap),
        inverse_temperature(1 / temperature),
        shares(shares_references),
        is_uneven(tokens, shares_references ? 0 : 1) {
    for (std::int64_t i = 0; i < tokens * channels; ++i) {
      bool const is_used = i / channels % 7 != 3;
      float const value = testing::gauss{}.value(9, static_cast<std::uint64_t>(i));
      hidden.push_back(store<bfloat16>(is_used ? value : NAN));
    }
    for (std::int64_t token = 0; token < tokens; ++token) {
      double sum = 0;
      for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
        auto const at = static_cast<std::uint64_t>(token * vocabulary + entry);
        bool const is_masked = offset != 0 && entry / 192 == 1;
        logits.push_back(is_masked ? -INFINITY : offset + testing::gauss{3.0}.value(5, at));
        sum += std::exp(static_cast<double>(logits.back() - offset));
      }
      auto const number = static_cast<std::uint64_t>(token);
      bool const is_used = token % 7 != 3;
      auto const label = static_cast<std::int32_t>(testing::hash(6, number) % static_cast<std::uint64_t>(vocabulary));
      row_of.push_back(is_used ? static_cast<std::int64_t>(targets.size()) : -1);
      bool const has_finite = std::isfinite(logit(token, label));
      shared_references[static_cast<std::size_t>(token)] = has_finite ? std::rint(logit(token, label) * log2_e) : 0.0F;
      keep(token);
      factors.push_back({static_cast<float>(std::log(sum) + static_cast<double>(offset)),
                         testing::uniform{0.5, 1.0}.value(7, number), testing::uniform{0.5, 1.0}.value(8, number),
                         is_used ? label : -1, 0, 0, 0, 0});
      if (is_used) {
        targets.push_back(logit(token, label));
      } else {
        for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
          values[static_cast<std::size_t>(token * stride + entry)] = store<bfloat16>(0.0F);
        }
      }
    }
  }

  float logit(std::int64_t token, std::int64_t entry) const {
    return logits[static_cast<std::size_t>(token * vocabulary + entry)];
  }
  void keep(std::int64_t token) {
    for (std::int64_t first = 0; first < vocabulary; first += tile) {
      std::int64_t const last = std::min(first + tile, vocabulary);
      float largest = -INFINITY;
      for (std::int64_t entry = first; entry < last; ++entry) {
        largest = std::fmax(largest, logit(token, entry) * log2_e);
      }
      float const shared = shared_references[static_cast<std::size_t>(token)];
      float const reference = shares ? shared : largest == -INFINITY ? 0.0F : largest;
      for (std::int64_t entry = first; entry < last; ++entry) {
        float const value = std::exp2(logit(token, entry) * log2_e - reference) * slope(logit(token, entry));
        values[static_cast<std::size_t>(token * stride + entry)] = store<bfloat16>(value);
      }
      if (!has_signs) {
        references[static_cast<std::size_t>(first / tile * tokens + token)] = shares ? shared : largest;
      } else if (!shares) {
        put_reference(&values[static_cast<std::size_t>(token * stride + first)], largest);
      }
    }
  }
  /// Writes a reference into the signs of a tile's values.
  static void put_reference(bfloat16* of_tile, float reference) {
    std::uint32_t words[tile / 2];
    std::memcpy(words, of_tile, sizeof words);
    for (int k = 0; k < tile / 2; ++k) {
      words[k] = detail::signed_reference::put(words[k], detail::signed_reference::bits_of(reference), k % 16);
    }
    std::memcpy(of_tile, words, sizeof words);
  }
  /// The softcap's slope at a logit.
  float slope(float value) const {
    float const bent = cap > 0 ? value / (cap * inverse_temperature) : 0.0F;
    return 1 - bent * bent;
  }
  /// The gradient that run() has left.
  double found(std::int64_t token, std::int64_t entry) const {
    return static_cast<double>(load(values[static_cast<std::size_t>(token * stride + entry)])) *
           static_cast<double>(factors[static_cast<std::size_t>(token)].by_kept);
  }
  double gradient(std::int64_t token, std::int64_t entry) const {
    loss_token_factors const& own = factors[static_cast<std::size_t>(token)];
    double const value = logit(token, entry);
    double const bent = cap > 0 ? value / (static_cast<double>(cap) * static_cast<double>(inverse_temperature)) : 0;
    double const softmax = std::exp(value - static_cast<double>(own.log_sum_exp));
    double const by_label = own.label == entry ? static_cast<double>(own.by_loss) : 0;
    return own.label < 0 ? 0
                         : (static_cast<double>(own.by_softmax) * softmax - by_label) * (1 - bent * bent) *
                               static_cast<double>(inverse_temperature);
  }

  void run(cpu const& exec) {
    matrix_view<std::uint8_t> const kept{blocks.data(), {2, stride / 128}};
    prepare_softmaxes<bfloat16, References> const program{{{values.data(), {tokens, vocabulary}, {stride, 1}},
                                                           {references.data(), {tiles, tokens}},
                                                           shared_references,
                                                           is_uneven,
                                                           state},
                                                          factors,
                                                          row_of,
                                                          targets,
                                                          {{}, cap, inverse_temperature},
                                                          {{hidden.data(), {tokens, channels}}},
                                                          {{scaled_hidden.data(), {tokens, channels}}},
                                                          kept,
                                                          kept,
                                                          exec.status()};
    exec.run(program, program.groups());
  }
};

/// How many gradients of `vocabulary` logits are farther from the exact ones than a part of these, and 1e-6: a part for
/// labels' logits and one for others. Leaves tokens out for which skips(token) is true.
template <class Problem, class Skips>
std::int64_t count_wrong(Problem const& problem, std::int64_t vocabulary, double of_label, double of_other,
                         Skips const& skips) {
  std::int64_t wrong = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t entry = 0; entry < vocabulary && !skips(token); ++entry) {
      double const expected = problem.gradient(token, entry);
      bool const is_label = problem.factors[static_cast<std::size_t>(token)].label == entry;
      double const bound = (is_label ? of_label : of_other) * std::fabs(expected) + 1e-6;
      wrong += std::fabs(problem.found(token, entry) - expected) <= bound ? 0 : 1;
    }
  }
  return wrong;
}
/// The same of all tokens.
template <class Problem>
std::int64_t count_wrong(Problem const& problem, std::int64_t vocabulary, double of_label, double of_other) {
  return count_wrong(problem, vocabulary, of_label, of_other, [](std::int64_t) { return false; });
}

}  // namespace softmaxes
}  // namespace tessera_test
