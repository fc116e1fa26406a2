// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `token_sample`: the tokens of a sequence that a statistic is computed from, where it need not use all tokens.
///
///     constexpr tessera::token_sample sample{16};
///     std::int64_t const step = sample.step(length);
///     for (std::int64_t i = 0; i < length / step; ++i) { add(keys[tessera::token_sample::token(i, step)]); }
///
/// The sample has one token of every `step`. The step is a power of two and so short that the sample has 512 tokens or
/// more: sequences of fewer than 1024 tokens are taken whole. In step i the sample takes token 11 i mod step, so that
/// it takes equally many tokens from each position of a pattern that repeats every 2, 4, 8 or 16 tokens, as columns of
/// images and rotary embeddings may. A remainder shorter than a step has no token in the sample. The sample depends on
/// the sequence's length alone: it is the same on every executor, and whatever else is in the batch.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

struct token_sample {
  static constexpr std::int32_t least = 512;  ///< the fewest tokens of a sample that is not the whole sequence

  std::int32_t longest_step = 1;  ///< a power of two; 1: all tokens are in the sample

  /// The step of a sequence of `length` tokens: of so many tokens the sample has one.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t step(std::int64_t length) const {
    std::int64_t found = 1;
    while (found < longest_step && 2 * least * found <= length) {
      found *= 2;
    }
    return found;
  }
  /// How many tokens the sample of a sequence has.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t count(std::int64_t length) const { return length / step(length); }
  /// The most tokens that the sample of a sequence of at most `length` tokens can have.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t most(std::int64_t length) const {
    return step(length) == 1 ? length : max(std::int64_t{2 * least - 1}, length / longest_step);
  }
  /// The token of the sequence that is the i-th of the sample.
  template <detail::Integer I>
  [[nodiscard]] TESSERA_FN static constexpr I token(I i, I step) {
    return i * step + (11 * (i & (step - 1)) & (step - 1));
  }
};

}  // namespace v0
}  // namespace tessera
