// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How many entries of the vocabulary a part of algorithm/loss/linear_distillation.hpp has, or how many tokens, with
/// the measurements that chose it.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

/// The entries of a part: a multiple of 128, at most `most`, and not below 3/4 of that.
///
/// A part's products have tiles of 256 x 256 for a cluster of two thread blocks: two products of tokens x entries, one
/// of tokens x channels and one of entries x channels. The number chosen is that for which the clusters of 132
/// multiprocessors are busiest in the last waves; elsewhere it is a number like others.
///
/// H200, 8192 tokens, 256000 x 2304, forward_kl, bf16: ms of a part's launches by ncu, at a higher clock than a whole
/// call has. With parts of 3584 entries 14 rows of tiles of entries times 9 of channels are 1.9 waves; with 2560, 1.4.
///
///     part                     2560, at first                   3584, with transposed copies
///     logits, of one side      0.190 (a map with a tanh)        0.185 (a multiplication, 730 TFLOP/s)
///     reduction of pairs       0.096 (floats, read twice)       0.092 (16 bytes at a time; 2.6 TB/s)
///     gradient by logits       0.167 (single elements)          0.116 (16 bytes at a time; 2.9 TB/s)
///     classifier, transposed   0.019                            0.024
///     hidden gradient          0.190                            0.235; where there is nothing to add to, 0.203
///     classifier's gradient    0.177                            0.182
///     both passes, whole call  155 ms                           119 to 121 ms
///
/// A reduction by 256 lanes that merged states at each step of the group's tree had 0.202 for 3584 entries, nearly all
/// of it after the last logit was read: lanes find the largest logits together first.
TESSERA_FN constexpr std::int64_t distillation_part_entries(std::int64_t tokens, std::int64_t channels,
                                                            std::int64_t most) {
  constexpr std::int64_t step = 128;
  constexpr std::int64_t clusters = 66;
  constexpr std::int64_t tile = 256;
  auto const waves = [](std::int64_t rows, std::int64_t columns) {
    return static_cast<double>(divide_up(divide_up(rows, tile) * divide_up(columns, tile), clusters));
  };
  auto const cost = [&](std::int64_t entries) {
    double const of_depths = 2.0 * waves(tokens, entries) * static_cast<double>(channels) +
                             waves(tokens, channels) * static_cast<double>(entries) +
                             waves(entries, channels) * static_cast<double>(tokens);
    return of_depths / static_cast<double>(entries);
  };
  std::int64_t best = max(most / step * step, step);
  for (std::int64_t entries = best - step; entries >= most - most / 4 && entries >= step; entries -= step) {
    best = cost(entries) < cost(best) ? entries : best;
  }
  return best;
}

/// What a distillation has memory for.
struct distillation_room {
  std::int64_t tokens;    ///< of the call
  std::int64_t logits;    ///< bytes of a token's logits, of both sides and the whole vocabulary
  std::int64_t gradient;  ///< bytes of its gradient by logits; 0: none are kept
  std::int64_t budget;    ///< bytes of what is kept and of the parts
  bool reads_twice;       ///< whether the forward pass needs all log-sum-exps before it reads logits again
};

/// How a forward pass takes tokens.
struct distillation_token_parts {
  std::int64_t tokens;  ///< of a part, with all entries; 0: parts are of entries, with all tokens
  std::int64_t kept;    ///< the tokens whose gradients by logits are kept, the first ones: whole parts, or all
};

/// The parts of tokens of a forward pass. Where logits are read once and nothing is kept, parts of entries have as few
/// products, and one read of each classifier.
///
/// What 8192 tokens take at least on an H200, in ms: products at 650 TFLOP/s, and bytes at 4.2 TB/s of logits and
/// gradients by logits, as algorithm/loss/linear_distillation.hpp counts them.
///
///                                         128256 x 4096    256000 x 2304
///     forward_kl, parts of entries        79 + 9.5         89 + 19
///     jensen_shannon, the same            106 + 13.5       119 + 27
///     jensen_shannon, parts of tokens     79 + 11.5        89 + 23
///     forward_kl, all tokens kept         53 + 7.5         59 + 15
///     jensen_shannon, all tokens kept     53 + 9.5         59 + 19
///
/// Measured are 89 and 120 ms in the first two lines, with 384 MiB (113 and 152 of 256000 x 2304), and in the last two
/// 58 and 62 within 4 GiB (75 and 83 within 6 GiB). In turns with products that take transposed copies, which move 2
/// bytes more, or 4 where all tokens are kept, and with a jensen_shannon of more instructions, the last two are 56 for
/// 59 (74 for 78) and 60 for 67 (80 for 90).
///
/// A part has at least 256 tokens, a row of tiles, and 512 where something is kept. By count, products of 512 tokens
/// with two classifiers of 128256 x 4096 take 1.6 ms, in 0.5 of which these are read; those of 256 tokens 0.8.
TESSERA_FN constexpr distillation_token_parts choose_token_parts(distillation_room const& room) {
  constexpr std::int64_t row = 256;
  auto const as_equal = [&](std::int64_t most) {
    std::int64_t const whole = most / row * row;
    return most >= room.tokens ? room.tokens
                               : min(align_up(divide_up(room.tokens, divide_up(room.tokens, whole)), row), whole);
  };
  std::int64_t const least_beside_kept = min(room.tokens, 2 * row);
  if (room.tokens <= 0 || room.logits <= 0 || room.budget / room.logits < min(room.tokens, row)) {
    return {0, 0};
  }
  if (room.gradient > 0 && room.budget / room.gradient >= room.tokens) {
    std::int64_t const most = (room.budget - room.gradient * room.tokens) / room.logits;
    if (most >= least_beside_kept) {
      return {as_equal(most), room.tokens};
    }
  }
  if (room.gradient > 0 && room.budget / room.logits >= 2 * row && room.tokens > 2 * row) {
    std::int64_t const kept = (room.budget - room.logits * 2 * row) / room.gradient / (2 * row) * (2 * row);
    if (kept > 0) {
      return {2 * row, min(kept, (room.tokens - 1) / (2 * row) * (2 * row))};
    }
  }
  return {room.reads_twice ? as_equal(room.budget / room.logits) : 0, 0};
}

}  // namespace v0
}  // namespace tessera
