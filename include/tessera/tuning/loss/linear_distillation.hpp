// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How many entries of the vocabulary a part of algorithm/loss/linear_distillation.hpp has, with the measurements that
/// chose it.
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
///     part                     2560, at first                   3584, as it is
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

}  // namespace v0
}  // namespace tessera
