// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Needles: a few tokens of a long prompt that the last query is about, and checks whether a cache reads them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/offload_problem.hpp"

namespace tessera_test {

struct needle_problem {
  offload_heads heads;
  std::int64_t tokens;  ///< tokens of the prompt; the query is the token after them
  std::int64_t first;   ///< first token of the needle
  std::int64_t length;  ///< how many tokens it has
  double persistence;   ///< persistence of the background: how alike keys of a chunk are
};

/// The same frequencies with opposite sign.
inline std::vector<double> opposite(std::vector<double> frequencies) {
  for (double& frequency : frequencies) {
    frequency = -frequency;
  }
  return frequencies;
}

/// Makes a sequence with a needle. The background is that of make_sequence. The needle's keys are one random direction,
/// the same for all its tokens before their rotation. The query of each head is, after its rotation, the direction of
/// the needle's middle key.
inline offload_sequence<tessera::bfloat16> make_needle(needle_problem const& p, std::vector<double> const& frequencies,
                                                       std::uint64_t seed) {
  using tessera::bfloat16;
  auto made = make_sequence<bfloat16>(p.heads, p.tokens + 1, seed, p.persistence);
  tessera::rotary_tables const tables(frequencies, p.tokens + 1);
  tessera::rotary_tables const back(opposite(frequencies), p.tokens + 1);
  auto const rotary = tables.embedding(tessera::rotary_pairs::halves);
  auto const backwards = back.embedding(tessera::rotary_pairs::halves);
  std::int64_t const n = p.heads.channels;
  std::int64_t const group = p.heads.query_heads / p.heads.key_heads;
  struct row_of {
    float const* data;
    float operator()(std::int64_t channel) const { return data[channel]; }
  };
  for (std::int64_t head = 0; head < p.heads.key_heads; ++head) {
    std::vector<float> direction(static_cast<std::size_t>(n));
    tessera::testing::fill(tessera::testing::gauss(), seed * 100 + static_cast<std::uint64_t>(head), direction.data(),
                           direction.size());
    double square = 0;
    for (float const x : direction) {
      square += double{x} * double{x};
    }
    for (std::int64_t token = p.first; token < p.first + p.length; ++token) {
      for (std::int64_t c = 0; c < n; ++c) {
        made.keys[static_cast<std::size_t>((head * made.tokens + token) * n + c)] =
            tessera::store<bfloat16>(direction[static_cast<std::size_t>(c)]);
      }
    }
    std::vector<float> turned;
    for (std::int64_t c = 0; c < n; ++c) {
      turned.push_back(rotary.turn(p.first + p.length / 2, c, row_of{direction.data()}));
    }
    constexpr double score = 12.0;  // the natural score of the query with the needle
    double const by = score * std::sqrt(static_cast<double>(n)) / square;
    for (std::int64_t h = head * group; h < (head + 1) * group; ++h) {
      for (std::int64_t c = 0; c < n; ++c) {
        float const value = backwards.turn(p.tokens, c, row_of{turned.data()});
        made.queries[static_cast<std::size_t>((h * made.tokens + p.tokens) * n + c)] =
            tessera::store<bfloat16>(static_cast<float>(by * double{value}));
      }
    }
  }
  return made;
}

/// How many heads read the chunk of the needle's middle in a step, by selection or because it is exact. s: the sequence
/// of make_needle.
template <class Method>
int heads_that_read(needle_problem const& p, std::vector<double> const& frequencies,
                    offload_sequence<tessera::bfloat16> const& s, typename Method::selector_type const& selector) {
  tessera::rotary_tables const tables(frequencies, p.tokens + 128);
  tessera::offload_options options;
  options.strays = 0;
  tessera::cpu const exec{.threads = 2};
  host_cache<Method, tessera::bfloat16> cache(p.heads, {p.tokens + 1}, tables.embedding(tessera::rotary_pairs::halves),
                                              options, selector);
  cache.prefill(exec, 0, s, p.tokens);
  cache.decode(exec, {&s}, {p.tokens});
  auto const step = cache.step(1);
  auto const chunk = static_cast<std::int32_t>((p.first + p.length / 2) / cache.plan().extents.chunk);
  int found = 0;
  for (std::int64_t head = 0; head < p.heads.key_heads; ++head) {
    bool is_read = cache.memory().chunk_slots(chunk, head) == static_cast<std::int16_t>(tessera::chunk_slot::exact);
    for (std::int64_t rank = 0; rank < step.selected_counts(0, head); ++rank) {
      is_read = is_read || step.selected(0, head, rank) == chunk;
    }
    found += is_read ? 1 : 0;
  }
  return found;
}

}  // namespace tessera_test
