// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_part_costs`: how long a part of a loss's backward pass takes, and what is chosen by that: how many tokens and
/// entries parts have, how wide the tiles of their products are, and what is multiplied beside a reduction over ranks.
///
///     auto const costs = loss_part_costs::of_two_launches();
///     costs.of_entry({8192, 2304, 6912});                      // steps for each entry of such a part
///     costs.cheapest_entries({8192, 2304, 7552}, 128);         // 7040: of at most 7552, what costs least
///
/// Times are in steps: a tile's rows and columns, multiplied over 64 of the depth. One of 256 x 192 takes 0.64 us on an
/// H200 at its power limit, and 66 clusters have such tiles at a time.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

/// The extents of a part: its logits' gradient is tokens x entries.
struct loss_part_extents {
  std::int64_t tokens;    ///< rows of hidden states
  std::int64_t channels;  ///< of a hidden state
  std::int64_t entries;   ///< of the vocabulary, in the part
};

/// Tiles that have sums of the same length.
struct loss_part_tiles {
  std::int64_t count;  ///< of tiles
  double steps;        ///< of each of them
};

/// What programs take for tiles. Workers compute whole tiles, as many at a time as there are workers, and the last
/// tiles of a launch leave some of these idle.
struct loss_part_costs {
  std::int64_t rows;             ///< tokens, or entries, of a tile
  std::int64_t made_columns;     ///< entries of a tile of logits
  std::int64_t product_columns;  ///< channels of a tile of gradients
  std::int64_t workers;          ///< tiles at a time
  double epilogue;               ///< steps for a tile beside those of its depth
  double launches;               ///< steps for a part beside its tiles
  bool ends_together = true;     ///< whether logits, and products, end before others begin
  bool orders_tiles = false;     ///< whether tiles of products that are much longer than others come first

  static constexpr std::int64_t clusters = 66;  ///< clusters of two blocks that an H200 runs at a time
  static constexpr std::int64_t depth = 64;     ///< of a step

  /// The programs for sm_90a with two launches for a part, whose epilogues are hidden behind other tiles. Turns are
  /// counted as if all tiles of products had the mean length, as they nearly have where parts are to be chosen.
  ///
  /// On an H200, 8192 tokens, V 256000, D 2304, exact, both passes take 59.5 ms with parts of 6912 entries, in 152 MiB;
  /// with one part, in 4 GiB, 2 % less. The backward pass alone, before parts were chosen by this model, took 54.0 ms
  /// with 75 parts and 47.9 ms with one: a part costs about 80 us beyond its work.
  static constexpr loss_part_costs of_two_launches() { return {256, 192, 192, clusters, 0, 200}; }
  /// Products of one part alone, which has sums of very different lengths.
  static constexpr loss_part_costs of_products(std::int64_t columns, std::int64_t workers, double epilogue) {
    return {256, 192, columns, workers, epilogue, 0, true, true};
  }
  /// The program for sm_90a with one launch for all parts, whose tiles wait for each other one by one.
  static constexpr loss_part_costs of_one_launch() { return {256, 192, 192, clusters, 4, 0, false}; }
  /// gemm_ring and gradient_ring, from sm_80 on.
  static constexpr loss_part_costs of_rings(std::int64_t columns, std::int64_t workers) {
    return {128, columns, columns, workers, 6, 8};
  }

  /// Steps for some tiles.
  [[nodiscard]] constexpr double turns(std::int64_t tiles) const {
    return ends_together ? static_cast<double>(divide_up(tiles, workers))
                         : static_cast<double>(tiles) / static_cast<double>(workers);
  }
  /// Steps for the tiles of logits.
  [[nodiscard]] constexpr double made(loss_part_extents const& part) const {
    std::int64_t const tiles = divide_up(part.tokens, rows) * divide_up(part.entries, made_columns);
    return turns(tiles) * (static_cast<double>(divide_up(part.channels, depth)) + epilogue);
  }
  /// Steps for the products with their gradient.
  [[nodiscard]] constexpr double multiplied(loss_part_extents const& part) const {
    std::int64_t const across = divide_up(part.channels, product_columns);
    return multiplied({divide_up(part.tokens, rows) * across, steps_of(part.entries)},
                      {divide_up(part.entries, rows) * across, steps_of(part.tokens)});
  }
  /// Steps for tiles of two products together. Where longer ones come first, workers without one in their last turn
  /// take that many more of the shorter (loss_product_schedule); else a turn has tiles of both.
  [[nodiscard]] constexpr double multiplied(loss_part_tiles const& one, loss_part_tiles const& other) const {
    loss_part_tiles const& longer = one.steps < other.steps ? other : one;
    loss_part_tiles const& shorter = one.steps < other.steps ? one : other;
    auto const ratio = shorter.steps > 0 ? static_cast<std::int64_t>(longer.steps / shorter.steps) : 0;
    std::int64_t const all = longer.count + shorter.count;
    if (ratio < 2 || !orders_tiles) {
      double const steps =
          static_cast<double>(longer.count) * longer.steps + static_cast<double>(shorter.count) * shorter.steps;
      return all > 0 ? turns(all) * (steps / static_cast<double>(all)) : 0;
    }
    std::int64_t const idle = (workers - longer.count % workers) % workers;  // in the last turn of the longer ones
    return turns(longer.count) * longer.steps +
           turns(max(shorter.count - idle * ratio, std::int64_t{0})) * shorter.steps;
  }
  /// Steps of a tile whose sums are so long.
  [[nodiscard]] constexpr double steps_of(std::int64_t extent) const {
    return static_cast<double>(divide_up(extent, depth)) + epilogue;
  }
  /// Steps for each entry of a part.
  [[nodiscard]] constexpr double of_entry(loss_part_extents const& part) const {
    return (made(part) + multiplied(part) + launches) / static_cast<double>(part.entries);
  }

  /// How many entries, a multiple of `step` and at most as many as a part's, cost least: a part that is up to a quarter
  /// smaller may keep more workers busy.
  [[nodiscard]] constexpr std::int64_t cheapest_entries(loss_part_extents const& most, std::int64_t step) const {
    auto const cost = [&, this](std::int64_t entries) { return of_entry({most.tokens, most.channels, entries}); };
    std::int64_t best = max(most.entries / step * step, step);
    std::int64_t const least = max(most.entries - most.entries / 4, step);
    for (std::int64_t entries = best - step; entries >= least; entries -= step) {
      best = cost(entries) < cost(best) ? entries : best;
    }
    return best;
  }
};

/// Whether the products of a part on sm_90a have tiles of 256 channels, which both warpgroups multiply together, in
/// place of 192 in turns: where they cost less.
///
/// The unused channels of last tiles are work, of which D 4096 has 3 % in tiles of 192 (21 and a third), and none in
/// tiles of 256. Those load 14 % fewer bytes for an operation, and tensor cores wait while sums of hidden states are
/// written.
[[nodiscard]] constexpr bool multiplies_widely(loss_part_extents const& part) {
  constexpr double rate = 256.0 / 192.0;  // steps of 192 channels in the time of one of 256
  constexpr double epilogue = 2;          // steps in which tensor cores wait
  constexpr auto in_turns = loss_part_costs::of_products(192, loss_part_costs::clusters, 0);
  constexpr auto together = loss_part_costs::of_products(256, loss_part_costs::clusters, epilogue);
  return rate * together.multiplied(part) < in_turns.multiplied(part);
}

/// How many tokens and entries a part of the backward pass on sm_90a has, where memory is short.
struct loss_chunk {
  std::int64_t tokens;   ///< all, or a multiple of 256
  std::int64_t entries;  ///< all that there is memory for, or a multiple of 256
};

/// Chooses loss_chunk for memory of `entries` of the vocabulary for each token, where gradients are fp32: few entries
/// of all tokens make few tiles of the classifier, and all tokens' gradients pass through memory with each part.
///
/// H200, bf16, 8192 tokens, 10 MiB, the backward pass in ms, medians of one run in which these alternated, with calls
/// of 160 MiB between them:
///
///     tokens x entries   2048 x 2048   2048 x 1536   1024 x 4096   4096 x 1024
///     V 256000, D 2304         53.35         54.51         57.73         53.89
///     V 128256, D 4096         45.16         48.90         49.67         48.96
///
/// A step takes 0.65 us then. A part costs what its tiles have of them, 4 for each epilogue, and 0.6 of what the first
/// row of the gradient by the logits is awaited: `latency` after its tiles have their last step, less the tiles of
/// other rows that clusters have meanwhile. That is what these eight took within 5 %.
///
/// With two launches a part (where a bias's gradient is wanted, or labels are distributions: what loss_gradient_parts
/// does not make) the pass takes 60.0 and 50.6 with 2048 x 2048, and 61.9 and 50.7 with 2048 x 1536. When launches did
/// not overlap, epilogues were unrolled, and the classifier's sums were read, added to and written, it took 66.2 and
/// 57.1. In steps, of parts of 2048 x 2048:
///
///                        before   products get    logits are multiplied while   epilogues are   the classifier's sums
///                                 ready early     products before them end      short loops     are added in memory
///     V 256000, D 2304     66.2           65.2                            63.9            63.4                    60.0
///     V 128256, D 4096     57.1             --                              --            52.6                    50.6
///
/// With unrolled epilogues sums added in memory gained nothing. Two gradients of half the size, so that products of one
/// part and logits of the next overlap on both sides, made the pass longer: 65.4 and 56.1 (2048 x 1024), 66.0 and 56.8
/// (1280 x 1536), since short sums have more epilogues. Storing the gradient so that L2 keeps it made it 1 % longer.
[[nodiscard]] constexpr loss_chunk choose_loss_chunk(std::int64_t tokens, std::int64_t vocabulary,
                                                     std::int64_t channels, std::int64_t entries) {
  constexpr std::int64_t enough = 2048;  // entries with which parts are taken of all tokens
  constexpr double step_bytes = 2.5e6;   // that memory moves in a step
  constexpr double latency = 13;         // steps from a tile's last one until what waits for it may begin
  constexpr double waiting = 0.6;        // the part of the first wait for a row that clusters lose
  constexpr loss_part_costs costs = loss_part_costs::of_one_launch();
  auto const cost = [&](loss_chunk const& chunk) {
    loss_part_extents const part{chunk.tokens, channels, chunk.entries};
    double const moved = static_cast<double>((chunk.tokens + chunk.entries) * channels * 8) / step_bytes;
    std::int64_t const in_row = divide_up(chunk.entries, costs.made_columns);
    double const behind = costs.turns((divide_up(chunk.tokens, costs.rows) - 1) * in_row);  // from a row to its users
    double const late = static_cast<double>(channels) / loss_part_costs::depth * (1 - behind) + latency;
    return (costs.made(part) + max(costs.multiplied(part), moved) + waiting * max(late, 0.0)) /
           static_cast<double>(chunk.tokens * chunk.entries);
  };
  std::int64_t const all_entries = divide_up(vocabulary, std::int64_t{256}) * 256;
  loss_chunk best{tokens, entries};
  for (std::int64_t parts = 2; parts <= 8 && entries < min(enough, vocabulary); parts *= 2) {
    std::int64_t const fewer = divide_up(tokens, parts * 256) * 256;
    if (fewer >= tokens) {
      return best;
    }
    for (std::int64_t some = min(tokens * entries / fewer / 256 * 256, all_entries); some > entries; some -= 256) {
      loss_chunk const tried{fewer, some};
      best = cost(tried) < cost(best) ? tried : best;
    }
  }
  return best;
}

/// Chooses loss_chunk for the gradient of hidden states alone, where `elements` of 16 bits hold the gradient by the
/// logits of some tokens, of at most as many entries as `most` has, and the lower halves of these tokens' sums in rows
/// of `row_stride`. Entries are a multiple of `step`. Fewer than 256 tokens only where memory suffices for no more.
[[nodiscard]] constexpr loss_chunk choose_hidden_chunk(loss_part_extents const& most, std::int64_t elements,
                                                       std::int64_t row_stride, std::int64_t step) {
  constexpr loss_part_costs costs = loss_part_costs::of_two_launches();
  auto const widest = [&](std::int64_t tokens) {
    return min((elements / max(tokens, std::int64_t{1}) - row_stride) / step, most.entries / step) * step;
  };
  auto const cost = [&](loss_chunk const& chunk) {
    std::int64_t const tiles = divide_up(chunk.tokens, costs.rows) * divide_up(most.channels, costs.product_columns);
    double const steps = costs.made({chunk.tokens, most.channels, chunk.entries}) +
                         costs.turns(tiles) * costs.steps_of(chunk.entries) + costs.launches;
    return steps / static_cast<double>(chunk.tokens * chunk.entries);
  };
  std::int64_t const few = min(most.tokens, std::int64_t{128});
  loss_chunk best{few, max(widest(few), step)};
  for (std::int64_t tokens = min(most.tokens, std::int64_t{256}); tokens > 0 && widest(tokens) > 0;) {
    loss_chunk const tried{tokens, widest(tokens)};
    best = best.tokens < min(most.tokens, std::int64_t{256}) || cost(tried) < cost(best) ? tried : best;
    std::int64_t const next = min(tokens + 256, most.tokens);
    if (next == tokens) {
      break;
    }
    tokens = next;
  }
  return best;
}

/// The products of the last part of a backward pass on sm_90a, beside a reduction of hidden states' gradients over
/// ranks. Times are in steps.
struct loss_products_beside_reduction {
  std::int64_t classifier_panels;  ///< panels of 256 entries
  std::int64_t hidden_panels;      ///< panels of 256 tokens
  std::int64_t channel_tiles;      ///< tiles of a panel
  std::int64_t workers;            ///< tiles that are multiplied at a time
  std::int64_t late_workers;       ///< the same where multiprocessors are spared
  std::int64_t token_steps;        ///< steps of a tile of the classifier
  std::int64_t entry_steps;        ///< steps of a tile of hidden states
  std::int64_t reduction;          ///< steps of the reduction

  static constexpr std::int64_t epilogue = 6;   ///< steps of a tile beside those of its depth
  static constexpr std::int64_t launches = 30;  ///< what a second launch costs

  /// For so many tokens and entries, and bytes that are reduced: 40 us, and 250 GB/s as on two H200 over NVLink.
  static constexpr std::int64_t steps_of(std::int64_t extent) { return divide_up(extent, std::int64_t{64}) + epilogue; }
  /// What a reduction over ranks takes, in steps.
  static constexpr std::int64_t reduction_of(std::int64_t bytes) { return 60 + bytes / 160000; }

  /// How many of the classifier's panels are multiplied after all of hidden states and beside their reduction; 0: none,
  /// where the last turns of two launches would take more time than is gained.
  [[nodiscard]] constexpr std::int64_t late_panels() const {
    std::int64_t best = 0;
    std::int64_t least = early(0) + reduction;
    for (std::int64_t late = 1; late <= classifier_panels; ++late) {
      std::int64_t const turns = divide_up(late * channel_tiles, late_workers);
      std::int64_t const cost = early(late) + max(launches + turns * token_steps, reduction);
      best = cost < least ? late : best;
      least = min(cost, least);
    }
    return best;
  }
  /// How many panels of hidden states, a multiple of `step`, are multiplied before the others, which then run beside
  /// their reduction, where there is no classifier's gradient; all: they are multiplied together.
  [[nodiscard]] constexpr std::int64_t early_hidden_panels(std::int64_t step) const {
    auto const turns = [&, this](std::int64_t panels, std::int64_t of) {
      return divide_up(panels * channel_tiles, of) * entry_steps;
    };
    std::int64_t best = hidden_panels;
    std::int64_t least = turns(hidden_panels, workers) + reduction;
    for (std::int64_t some = step; some < hidden_panels; some += step) {
      std::int64_t const of_some = reduction * some / hidden_panels;
      std::int64_t const cost = turns(some, workers) +
                                max(launches + turns(hidden_panels - some, late_workers), of_some) + reduction -
                                of_some;
      best = cost < least ? some : best;
      least = min(cost, least);
    }
    return best;
  }

 private:
  /// Steps of the launch that has all of hidden states and all but so many panels of the classifier.
  [[nodiscard]] constexpr std::int64_t early(std::int64_t late) const {
    loss_part_costs const costs = loss_part_costs::of_products(192, workers, epilogue);
    return static_cast<std::int64_t>(
        costs.multiplied({hidden_panels * channel_tiles, static_cast<double>(entry_steps)},
                         {(classifier_panels - late) * channel_tiles, static_cast<double>(token_steps)}));
  }
};

}  // namespace v0
}  // namespace tessera
