// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `token_sample`: the tokens of a sequence that a statistic is of, where it need not be one of all tokens.
///
///     constexpr tessera::token_sample sample{16};
///     std::int64_t const step = sample.step(length);
///     for (std::int64_t i = 0; i < length / step; ++i) { add(keys[tessera::token_sample::token(i, step)]); }
///
/// One token of every `step`, which is a power of two and so short that 512 tokens or more are in the sample: sequences
/// of fewer than 1024 tokens are taken whole. The token of step i is number 11 i mod step, so that what repeats every
/// 2, 4, 8 or 16 tokens, as columns of images and rotary embeddings may, is met at all of its places alike. A rest
/// shorter than a step has none. The sample is a function of the sequence's length alone: the same on every executor,
/// and whatever else is in the batch.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

struct token_sample {
  static constexpr std::int32_t least = 512;  ///< tokens of a sample that is not the whole sequence

  std::int32_t longest_step = 1;  ///< a power of two; 1: all tokens are in the sample

  /// Of how many tokens of a sequence one is taken.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t step(std::int64_t length) const {
    std::int64_t found = 1;
    while (found < longest_step && 2 * least * found <= length) {
      found *= 2;
    }
    return found;
  }
  /// Tokens of the sample of a sequence.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t count(std::int64_t length) const { return length / step(length); }
  /// The most tokens of samples of sequences of at most `length` tokens.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t most(std::int64_t length) const {
    return step(length) == 1 ? length : max(std::int64_t{2 * least - 1}, length / longest_step);
  }
  /// Which token of the sequence the i-th of the sample is.
  template <class Integer>
  [[nodiscard]] TESSERA_FN static constexpr Integer token(Integer i, Integer step) {
    return i * step + (11 * (i & (step - 1)) & (step - 1));
  }
};

}  // namespace v0
}  // namespace tessera
